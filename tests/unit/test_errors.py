"""Errors with typed fields: their text, their arguments, and that they can be pickled."""

import importlib
import pickle
import pkgutil
import string
from collections.abc import Iterator

import pytest

import plimsoll
from plimsoll.errors import FieldError, InvalidQuantityError, StructuredError
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.store.errors import StoreError


def _subclasses(parent: type[StructuredError]) -> Iterator[type[StructuredError]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def test_every_template_names_only_fields_of_its_error() -> None:
    for module in pkgutil.walk_packages(plimsoll.__path__, "plimsoll."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    errors = [error for error in _subclasses(StructuredError) if error.__str__ is StructuredError.__str__]
    errors.remove(StoreError)  # a base without fields
    assert len(errors) > 20
    for error in errors:
        names = {name for _, name, _, _ in string.Formatter().parse(error.template) if name is not None}
        assert names <= set(error._fields), error


def test_fields_are_set_by_position_by_name_and_by_default() -> None:
    error = CgroupError("write", "/kubepods", data="1", errno=2)
    assert (error.op, error.path, error.data, error.errno, error.detail) == ("write", "/kubepods", "1", 2, "")
    assert error.args == ("write", "/kubepods", "1", 2, "")


def test_a_missing_field_is_an_error() -> None:
    with pytest.raises(AttributeError, match="reason"):
        InvalidQuantityError("1x")  # type: ignore[call-arg]


def test_a_pickled_error_keeps_its_fields_and_its_text() -> None:
    error = pickle.loads(pickle.dumps(InvalidQuantityError("1x", "{unable to parse}")))
    assert (error.text, error.reason, str(error)) == ("1x", "{unable to parse}", "{unable to parse}")


def test_a_value_is_quoted_as_by_kubernetes() -> None:
    """field.Error formats texts with %q."""
    error = FieldError("FieldValueInvalid", "spec.a", "must be short", 'a"\\\n\x1b[2J\té\u200b')
    assert str(error) == 'spec.a: Invalid value: "a\\"\\\\\\n\\x1b[2J\\té\\u200b": must be short'
