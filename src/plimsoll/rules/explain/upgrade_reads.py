"""Which settings of a node the rules read for an answer: a setting that they did not read cannot change it.

`recorded` gives a node whose policy, gates, profile and configuration note every field that is read. The rules are pure
functions, so what they did not read has no effect on the answer, and nothing has to list which row changes which value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.node.node_config import NodeConfig

Setting = tuple[str, str]  # where it is, and its name
_S = TypeVar("_S", bound=msgspec.Struct)
_GATE = "gate"


def recorded(setting: NodeConfig) -> tuple[NodeConfig, set[Setting]]:
    """The same node, and the settings that are read of it from now on."""
    read: set[Setting] = set()
    gates = _recording(setting.policy.gates, "gates", read)
    policy = _recording(msgspec.structs.replace(setting.policy, gates=gates), "policy", read)
    profile = _recording(setting.profile, "profile", read)
    config = _recording(setting.config, "config", read)
    parts = {"policy": policy, "profile": profile, "config": config}
    node = _recording(msgspec.structs.replace(setting, **parts), "node", read)
    read.clear()  # what their construction has read
    return node, read


def differing(first: NodeConfig, second: NodeConfig) -> frozenset[Setting]:
    left, right = dict(_settings(first)), dict(_settings(second))
    return frozenset(key for key in left if left[key] != right[key])


_PARTS = frozenset({("node", "policy"), ("node", "profile"), ("node", "config"), ("policy", "gates")})


def _settings(setting: NodeConfig) -> Iterator[tuple[Setting, object]]:
    places = {
        "node": setting,
        "policy": setting.policy,
        "gates": setting.policy.gates,
        "profile": setting.profile,
        "config": setting.config,
    }
    for place, struct in places.items():
        for name in struct.__struct_fields__:
            if (place, name) not in _PARTS:
                yield (place, name), getattr(struct, name)
    for name, on in setting.config.feature_gates.items():
        yield (_GATE, name), on


def _recording(struct: _S, place: str, read: set[Setting]) -> _S:
    """Of a class of its own: rules may replace fields of a struct, and the copy has to record as well."""
    own: Any = type(struct)

    def __getattribute__(self: Any, name: str) -> Any:
        read.add((place, name))
        return own.__getattribute__(self, name)

    def gate(self: KubeletConfig, name: str) -> bool:
        """One gate, not all of them."""
        read.add((_GATE, name))
        return bool(own.__getattribute__(self, "feature_gates")[name])

    methods = {"__getattribute__": __getattribute__, **({"gate": gate} if own is KubeletConfig else {})}
    made = type(own.__name__, (own,), methods)
    fields = {name: getattr(struct, name) for name in own.__struct_fields__}
    return made(**fields)  # type: ignore[no-any-return]
