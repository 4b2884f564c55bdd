"""A pod document with what its RuntimeClass adds; the rule is `rules.admission.runtime_class`."""

from __future__ import annotations

import msgspec

from plimsoll.codec.defaults.members import put
from plimsoll.rules.admission.runtime_class import with_runtime_class
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import RuntimeClass


def with_class(document: JsonObject, pod: Pod, runtime_class: RuntimeClass) -> JsonObject:
    """`pod`: the document, decoded. The argument is not changed."""
    spec = with_runtime_class(pod, runtime_class).spec
    added: JsonObject = {}
    if spec.overhead is not pod.spec.overhead and spec.overhead:
        added["overhead"] = {name: str(quantity) for name, quantity in spec.overhead.items()}
    if spec.node_selector != pod.spec.node_selector:
        added["nodeSelector"] = spec.node_selector
    if spec.tolerations != pod.spec.tolerations:
        added["tolerations"] = [msgspec.to_builtins(each) for each in spec.tolerations]
    kept = {name: value for name, value in document["spec"].items() if name not in added}
    return {**document, "spec": put("core.PodSpec", kept, added)}
