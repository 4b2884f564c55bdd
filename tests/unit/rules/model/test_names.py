"""Names: texts that are names (R-4) and classes of resource names (R-3)."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.model import names
from plimsoll.rules.quantity import QUANTITIES

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

TEXTS = [
    ("label: letter", names.dns_label_problems, "a", ()),
    ("label: digits and dash", names.dns_label_problems, "1-b", ()),
    ("label: 63 bytes", names.dns_label_problems, "a" * 63, ()),
    ("label: 64 bytes", names.dns_label_problems, "a" * 64, ("must be no more than 63 characters",)),
    ("label: dots", names.dns_label_problems, "a.b", ("must not contain dots",)),
    ("label: capital", names.dns_label_problems, "Web", (LABEL_RULE,)),
    ("label: dash at the end", names.dns_label_problems, "a-", (LABEL_RULE,)),
    ("label: line end", names.dns_label_problems, "a\n", (LABEL_RULE,)),
    ("label: empty", names.dns_label_problems, "", (LABEL_RULE,)),
    (
        "label: bytes, not characters",
        names.dns_label_problems,
        "é" * 32,
        ("must be no more than 63 characters", LABEL_RULE),
    ),
    ("label: lone surrogate", names.dns_label_problems, "\ud800", (LABEL_RULE,)),
    ("subdomain: dots", names.dns_subdomain_problems, "a.b-c.d", ()),
    ("subdomain: 253 bytes", names.dns_subdomain_problems, "a" * 253, ()),
    ("subdomain: 254 bytes", names.dns_subdomain_problems, "a" * 254, ("must be no more than 253 characters",)),
    ("subdomain: empty label", names.dns_subdomain_problems, "a..b", (SUBDOMAIN_RULE,)),
    ("subdomain: underscore", names.dns_subdomain_problems, "a_b", (SUBDOMAIN_RULE,)),
    ("generated: dash at the end", names.generated_name_problems, "web-", ()),
    ("generated: a dash alone", names.generated_name_problems, "-", (SUBDOMAIN_RULE,)),
    ("generated: dot at the end", names.generated_name_problems, "web.", (SUBDOMAIN_RULE,)),
    ("qualified: plain", names.qualified_name_problems, "My_Name.x-1", ()),
    ("qualified: prefixed", names.qualified_name_problems, "example.com/MyName", ()),
    ("qualified: 63 bytes of name", names.qualified_name_problems, "example.com/" + "a" * 63, ()),
    (
        "qualified: 64 bytes of name",
        names.qualified_name_problems,
        "a" * 64,
        ("name part must be no more than 63 bytes",),
    ),
    (
        "qualified: prefix with capitals",
        names.qualified_name_problems,
        "Example.com/x",
        (f"prefix part {SUBDOMAIN_RULE}",),
    ),
    ("qualified: no prefix", names.qualified_name_problems, "/x", ("prefix part must be non-empty",)),
    (
        "qualified: no name",
        names.qualified_name_problems,
        "a/",
        ("name part must be non-empty", f"name part {QUALIFIED_RULE}"),
    ),
    (
        "qualified: empty",
        names.qualified_name_problems,
        "",
        ("name part must be non-empty", f"name part {QUALIFIED_RULE}"),
    ),
    (
        "qualified: two slashes",
        names.qualified_name_problems,
        "a/b/c",
        (
            f"a valid label key {QUALIFIED_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
    ),
    ("value: empty", names.label_value_problems, "", ()),
    ("value: word", names.label_value_problems, "A_b.c", ()),
    ("value: slash", names.label_value_problems, "a/b", (LABEL_VALUE_RULE,)),
    ("value: 64 bytes", names.label_value_problems, "a" * 64, ("must be no more than 63 bytes",)),
]


@pytest.mark.parametrize(("check", "text", "problems"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_texts(check, text, problems):
    assert check(text) == problems


ALPHABET = string.ascii_letters + string.digits + "-._/ é\n"


def is_label(text: str) -> bool:
    inside = set(string.ascii_lowercase + string.digits + "-")
    return text != "" and set(text) <= inside and not text.startswith("-") and not text.endswith("-")


@given(st.text(ALPHABET, max_size=8))
def test_r4_labels_and_subdomains_by_their_letters(text):
    assert (names.dns_label_problems(text) == ()) == is_label(text)
    assert (names.dns_subdomain_problems(text) == ()) == all(map(is_label, text.split(".")))


@given(st.text(ALPHABET, max_size=8))
def test_r4_a_prefix_is_a_subdomain_and_a_name_a_label_value_that_is_not_empty(text):
    *prefix, name = text.split("/")
    good = len(prefix) <= 1 and all(not names.dns_subdomain_problems(part) for part in prefix)
    good = good and name != "" and not names.label_value_problems(name)
    assert (names.qualified_name_problems(text) == ()) == good


# name: native, hugepages, extended, overcommittable, integer-only, container standard
CLASSES = {
    "cpu": (True, False, False, True, False, True),
    "memory": (True, False, False, True, False, True),
    "ephemeral-storage": (True, False, False, True, False, True),
    "hugepages-2Mi": (True, True, False, False, False, True),
    "pods": (True, False, False, True, True, False),
    "storage": (True, False, False, True, False, False),
    "secrets": (True, False, False, True, True, False),
    "services.nodeports": (True, False, False, True, True, False),
    "nvidia.com/gpu": (False, False, True, False, True, False),
    "kubernetes.io/batch": (True, False, False, True, False, False),
    "x.kubernetes.io/y": (True, False, False, True, False, False),
    "requests.x.com/y": (False, False, False, False, False, False),
    "Bad.com/y": (False, False, False, False, False, False),
}


@pytest.mark.parametrize("name", CLASSES)
def test_r3_classes(name):
    found = tuple(
        check(name)
        for check in (
            names.is_native,
            names.is_hugepages,
            names.is_extended,
            names.is_overcommittable,
            names.is_integer_only,
            names.is_container_standard,
        )
    )
    assert found == CLASSES[name]


def test_r3_an_extended_name_leaves_room_for_quotas_prefix():
    at_the_edge = "a" * 240 + ".com"
    assert len(at_the_edge) + len("requests.") == 253
    assert names.is_extended(f"{at_the_edge}/gpu")
    assert not names.is_extended(f"a{at_the_edge}/gpu")


UNKNOWN = "must be a standard resource type or fully qualified"
UNUSABLE = "must be a standard resource for containers"
NOT_EXTENDED = "doesn't follow extended resource name standard"


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        pytest.param("cpu", (), id="standard"),
        pytest.param("hugepages-2Mi", (), id="hugepages"),
        pytest.param("nvidia.com/gpu", (), id="extended"),
        pytest.param("kubernetes.io/batch", (), id="native with prefix"),
        pytest.param("foo", (UNKNOWN, UNUSABLE), id="V-2 V-3"),
        pytest.param("pods", (UNUSABLE,), id="V-3 pods"),
        pytest.param("storage", (UNUSABLE,), id="V-3 storage"),
        pytest.param("requests.cpu", (UNUSABLE,), id="V-3 quota name"),
        pytest.param("requests.hugepages-2Mi", (UNUSABLE,), id="V-3 quota hugepages"),
        pytest.param("requests.x.com/y", (NOT_EXTENDED,), id="V-4"),
        pytest.param("-", (f"name part {QUALIFIED_RULE}", UNUSABLE), id="V-1 V-3"),
        pytest.param("X.com/y", (f"prefix part {SUBDOMAIN_RULE}", NOT_EXTENDED), id="V-1 V-4"),
    ],
)
def test_names_that_containers_may_use(name, problems):
    assert names.container_resource_problems(name) == problems


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("hugepages-2Mi", "2Mi"),
        ("hugepages-1Gi", "1Gi"),
        ("hugepages-1e3", "1000"),
        ("hugepages-", None),
        ("hugepages-0", None),
        ("hugepages--2Mi", None),
        ("hugepages-1m", None),
        ("hugepages-big", None),
    ],
)
def test_v7_page_sizes(name, size):
    assert names.page_size(name) == (None if size is None else QUANTITIES[size])


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ("web-0", "web-0.18a7f5c1d2e3f405"),
        ("p" * 253, "p" * 236 + ".18a7f5c1d2e3f405"),
        ("p" * 235 + "-x" + "p" * 16, "p" * 235 + ".18a7f5c1d2e3f405"),
    ],
    ids=["short", "longest", "cut at a dash"],
)
def test_names_of_events(about: str, name: str) -> None:
    assert names.event_name(about, 0x18A7F5C1D2E3F405) == name
    assert not names.dns_subdomain_problems(name)
