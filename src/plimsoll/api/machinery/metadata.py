"""Metadata that the server controls: what a create sets, what an update may not change, how bodies are stored."""

from __future__ import annotations

import re
from typing import TypeGuard

from plimsoll.api.machinery.encoding import encoded
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.status import bad_request, internal, precondition_failed
from plimsoll.errors import FieldError
from plimsoll.rules.admission.metadata import metadata_errors, metadata_update_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import qualified_name_problems
from plimsoll.rules.model.objects import Metadata
from plimsoll.store.errors import TooLargeError
from plimsoll.store.records import MAX_OBJECT_BYTES, TOO_LARGE

_TIMES = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
# As Go prints them.
_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    *_TIMES,
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_OF_THE_SERVER = ("uid", *_TIMES, "generation", "selfLink")


def body_of(document: JsonObject, version: int | str) -> bytes:
    """The object as it is stored and printed in lists: no kind and apiVersion, its version in it, metadata first."""
    metadata = document["metadata"]
    metadata["resourceVersion"] = str(version)
    ordered = {name: metadata[name] for name in _ORDER if name in metadata}
    others = {name: value for name, value in document.items() if name not in ("kind", "apiVersion", "metadata")}
    return encoded({"metadata": ordered, **others})


def unstamped_body(document: JsonObject) -> bytes:
    """Of a dry run: nothing was stored, so a new object has no version."""
    version = document["metadata"].get("resourceVersion")
    body = body_of(document, version or 0)
    return body if version else body.replace(b'"resourceVersion":"0",', b"", 1)


def dry_run_body(document: JsonObject) -> bytes:
    """As it would be stored. Raises TooLargeError."""
    body = unstamped_body(document)
    if len(body) > MAX_OBJECT_BYTES:
        raise TooLargeError(len(body), TOO_LARGE)
    return body


def created_metadata(sent: JsonObject, namespace: str, name: str, uid: str, now: str) -> JsonObject:
    """What the client sent, with the fields that the server sets."""
    metadata = {key: value for key, value in sent.items() if key not in _OF_THE_SERVER}
    metadata["name"] = name
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    return metadata


def is_version(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _NUMBER.fullmatch(text) is not None


def check_unversioned(metadata: JsonObject) -> None:
    """Of a new object when it is written, thus after admission. A version that is no number counts as none."""
    version = metadata.get("resourceVersion")
    if is_version(version) and int(version):
        raise internal("resourceVersion should not be set on objects to be created")


def check_place(metadata: JsonObject, namespace: str, name: str, *, namespaced: bool) -> None:
    """Raise 400 where the body names another object than the URL."""
    sent_namespace, sent_name = metadata.get("namespace") or "", metadata.get("name") or ""
    if sent_namespace and (sent_namespace != namespace if namespaced else True):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if name and sent_name and sent_name != name:
        raise bad_request(f"the name of the object ({sent_name}) does not match the name on the URL ({name})")


def updated_metadata(old: JsonObject, sent: JsonObject) -> JsonObject:
    """The client's labels, annotations, finalizers, owners and managedFields with the stored fields of the server."""
    metadata = {key: value for key, value in sent.items() if key not in _OF_THE_SERVER}
    for field in (*_OF_THE_SERVER, "name", "namespace", "resourceVersion"):
        if field in old:
            metadata[field] = old[field]
        else:
            metadata.pop(field, None)
    return metadata


def check_preconditions(resource: ApiResource, name: str, metadata: JsonObject, uid: str, version: str) -> None:
    """409 where the stored object does not meet the preconditions."""
    stored_uid, stored_version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if uid and uid != stored_uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({stored_uid}). "
            "The object might have been deleted and then recreated"
        )
        raise precondition_failed(resource, name, why)
    if version and version != stored_version:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({stored_version}). The object might have been modified"
        )
        raise precondition_failed(resource, name, why)


def finalizer_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """An object that is being deleted accepts no new finalizers."""
    if not old.get("deletionTimestamp"):
        return []
    before = old.get("finalizers") or []
    added = [finalizer for finalizer in new.get("finalizers") or [] if finalizer not in before]
    if not added:
        return []
    shown = ", ".join(f'"{finalizer}"' for finalizer in added)
    reason = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
    return [FieldError("FieldValueForbidden", "metadata.finalizers", reason)]


def object_errors(resource: ApiResource, metadata: JsonObject) -> list[FieldError]:
    """Names, labels and annotations of any kind."""
    lean = Metadata(
        name=metadata.get("name") or "",
        namespace=metadata.get("namespace") or "",
        labels=metadata.get("labels"),
        annotations=metadata.get("annotations"),
        generate_name=metadata.get("generateName") or "",
    )
    errors = metadata_errors(lean, dots=not resource.dns_label_name, is_path=resource.path_name)
    for index, name in enumerate(metadata.get("finalizers") or ()):
        path = f"metadata.finalizers[{index}]"
        if problems := qualified_name_problems(name):
            errors += [FieldError("FieldValueInvalid", path, problem, name) for problem in problems]
        elif "/" not in name and name not in _STANDARD_FINALIZERS and not _is_extension(resource):
            reason = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(FieldError("FieldValueInvalid", path, reason, name))
    return errors


def _is_extension(resource: ApiResource) -> bool:
    """Definitions and custom objects may have finalizers of any name."""
    return resource.custom is not None or resource.group == "apiextensions.k8s.io"


def update_errors(old: JsonObject, sent: JsonObject) -> list[FieldError]:
    """Fields that no update may change; those it omits are filled in (05 B6)."""
    # A deletion that has started stays, whatever the client sends.
    deletion = old.get("deletionTimestamp") or sent.get("deletionTimestamp")
    lean = [
        Metadata(
            uid=metadata.get("uid") or "",
            creation_timestamp=metadata.get("creationTimestamp"),
            deletion_timestamp=deletion if metadata is sent else old.get("deletionTimestamp"),
        )
        for metadata in (old, sent)
    ]
    return metadata_update_errors(*lean) + finalizer_errors(old, sent)
