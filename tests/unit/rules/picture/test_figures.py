"""The figures of documents 000 and 004 as pictures: every number is the one of the document's formula.

Expected values are computed here from the documents: memory.high = ⌊(request + factor · (limit − request)) / page⌋ ·
page, with node allocatable in place of a limit and 0 in place of a request; memory.min = the requests of the level;
memory.max = the limit.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.unit.console import run

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
SVG = "{http://www.w3.org/2000/svg}"
MI, GI = 1 << 20, 1 << 30
PAGE = 4096
CAPACITY = 8 * GI
FILES = [
    str(EXAMPLES / "documents" / "000-example.yaml"),
    str(EXAMPLES / "documents" / "000-burstable-request-only.yaml"),
    str(EXAMPLES / "three-classes.yaml"),
]
QOS = "MemoryQoS=true"


def high(request: int, limit: int, factor_tenths: int = 9) -> int:
    """In whole numbers: the factor is 0.9."""
    return (request * 10 + factor_tenths * (limit - request)) // 10 // PAGE * PAGE


def drawn(*options: str, files: list[str] | None = None) -> ElementTree.Element:
    ran = run("explain", *(files or FILES), "--capacity", "cpu=4,memory=8Gi", "-o", "svg", *options)
    assert ran.code == 0, ran.err
    return ElementTree.fromstring(ran.out)


def vessels(svg: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """The first line of a group's title → the group."""
    return {
        title.text.split(",")[0]: group
        for group in svg.iter(f"{SVG}g")
        if (title := group.find(f"{SVG}title")) is not None and title.text
    }


def texts(group: ElementTree.Element) -> list[str]:
    """The texts that stand in the group itself, not in a vessel inside it."""
    return [text.text or "" for text in group.findall(f"{SVG}text")]


def exact(group: ElementTree.Element, file: str) -> int | None:
    """The exact value of a file: the picture shows it rounded, its title in bytes."""
    title = group.find(f"{SVG}title")
    assert title is not None and title.text
    found = re.search(rf"^{re.escape(file)} [\d.]+ \w+ \((\d+) bytes\)", title.text, re.MULTILINE)
    return int(found[1]) if found else None


def shown(group: ElementTree.Element, file: str) -> str | None:
    return next((text for text in texts(group) if text.startswith(f"{file} ")), None)


# The cases of document 000, "Support for Pod QoS classes": container → request, limit; None is not set.
CASES = {
    "Guaranteed: gold": ("container app", "pod gold (Guaranteed)", 64 * MI, 64 * MI),
    "Burstable, both set": ("container app", "pod silver (Burstable)", 64 * MI, 128 * MI),
    "Burstable, request only": ("container nginx", "pod request-only (Burstable)", 300 * MI, None),
    "BestEffort": ("container app", "pod bronze (BestEffort)", None, None),
    "the document's example": ("container nginx", "pod example (Burstable)", 64 * MI, 64 * MI),
}


def container_of(svg: ElementTree.Element, pod: str) -> ElementTree.Element:
    return next(
        group
        for group in vessels(svg)[pod].iter(f"{SVG}g")
        if (title := group.find(f"{SVG}title")) is not None and (title.text or "").startswith("container ")
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_levels_of_document_000(case: str) -> None:
    _, pod, request, limit = CASES[case]
    svg = drawn("--feature-gates", QOS)
    container = container_of(svg, pod)
    assert exact(container, "memory.min") == request
    assert exact(container, "memory.max") == limit
    expected = None if request is not None and request == limit else high(request or 0, limit or CAPACITY)
    assert exact(container, "memory.high") == expected
    # memory.high only in containers, memory.min also above them.
    assert exact(vessels(svg)[pod], "memory.high") is None
    assert exact(vessels(svg)[pod], "memory.min") == request


def test_memory_min_of_the_node_is_the_sum_of_all_requests() -> None:
    svg = drawn("--feature-gates", QOS)
    assert exact(vessels(svg)["all pods"], "memory.min") == (64 + 300 + 64 + 64) * MI
    assert exact(vessels(svg)["QoS class Burstable"], "memory.min") == (64 + 300 + 64) * MI
    assert exact(vessels(svg)["all pods"], "memory.max") == CAPACITY


def test_the_formula_stands_beside_its_line() -> None:
    container = container_of(drawn("--feature-gates", QOS), "pod silver (Burstable)")
    said = "".join(texts(container)).replace(" ", "")
    assert "⌊(67108864+(134217728−67108864)·0.9)/4096⌋·4096=127504384" in said
    assert high(64 * MI, 128 * MI) == 127504384
    assert shown(container, "memory.high") == "memory.high 121.5 MiB"  # 121.59 MiB, truncated
    assert "←requests.memory" in said


@pytest.mark.parametrize(
    ("options", "request_only_min", "bronze_high"),
    [
        (["--feature-gates", "MemoryQoS=false"], None, None),
        (["--profile", "1.27", "--feature-gates", QOS], 300 * MI, None),  # documented; real 1.27 did not
        (["--profile", "1.36", "--feature-gates", QOS], None, None),  # memoryReservationPolicy: None
        (["--feature-gates", QOS], 300 * MI, high(0, CAPACITY)),
    ],
    ids=["gate off", "1.27", "1.36", "documents"],
)
def test_profile_and_gates_change_the_lines(
    options: list[str], request_only_min: int | None, bronze_high: int | None
) -> None:
    svg = drawn(*options)
    assert exact(container_of(svg, "pod request-only (Burstable)"), "memory.min") == request_only_min
    assert exact(container_of(svg, "pod bronze (BestEffort)"), "memory.high") == bronze_high
    assert exact(container_of(svg, "pod gold (Guaranteed)"), "memory.max") == 64 * MI


def test_a_note_says_where_the_document_differs_from_the_release() -> None:
    said = " ".join(texts(container_of(drawn("--feature-gates", QOS), "pod bronze (BestEffort)")))
    assert "documented; real 1.27 did not" in said


def test_heights_are_proportional_to_values() -> None:
    """In an upright vessel the lines are where their values are: min at 64/128, high at 121.6/128 of the height."""
    container = container_of(drawn("--feature-gates", QOS), "pod silver (Burstable)")
    lines = {}
    for path in container.findall(f"{SVG}path"):
        style = path.get("class", "").split()
        points = [tuple(map(float, point.split())) for point in (path.get("d") or "")[1:].split("L")]
        if style[0] == "line":
            lines[style[1]] = points[0][1]
        elif style[0] == "hull":
            bottom = points[1][1]
    height = bottom - lines["max"]
    assert (bottom - lines["min"]) / height == pytest.approx(64 / 128, abs=0.002)
    assert (bottom - lines["high"]) / height == pytest.approx(127504384 / (128 * MI), abs=0.002)


def test_the_four_levels_of_document_004() -> None:
    """Node, QoS class, pod and container are nested; a Guaranteed pod is directly below kubepods (3.3.3)."""
    file = str(EXAMPLES / "documents" / "004-busybox.yaml")
    svg = drawn(files=[file, FILES[2]])
    found = vessels(svg)
    above = {child: parent for parent in svg.iter() for child in parent}

    def enclosing(group: ElementTree.Element) -> list[str]:
        names = {id(each): name for name, each in found.items()}
        chain = []
        while (group := above.get(group)) is not None:
            chain += [names[id(group)]] if id(group) in names else []
        return chain

    busybox = next(name for name in found if name.startswith("pod busybox"))
    container = container_of(svg, busybox)
    assert enclosing(container) == [busybox, "QoS class Burstable", "all pods"]
    assert enclosing(found["pod gold (Guaranteed)"]) == ["all pods"]
    assert exact(container, "memory.max") == 400 * MI
    assert "cpu.max 50000 100000" in texts(container)  # 500m


def test_diff_draws_both_sides_and_marks_what_differs() -> None:
    svg = drawn("--feature-gates", QOS, "--diff", "documents,1.36")
    words = [text.text or "" for text in svg.iter(f"{SVG}text")]
    assert "documents" in words and "1.36" in words
    assert "≠ memory.min 64.0 MiB" in words  # on the left
    assert "≠ no memory.min" in words  # on the right
    assert "≠ memory.max 64.0 MiB" not in words


def test_text_alternative_has_every_value() -> None:
    svg = drawn("--feature-gates", QOS)
    assert svg.get("role") == "img"
    title, desc = svg.find(f"{SVG}title"), svg.find(f"{SVG}desc")
    assert title is not None and title.text == "Memory lines and CPU of 5 pods on node"
    assert svg.get("aria-labelledby") == title.get("id")
    assert desc is not None and desc.text and svg.get("aria-describedby") == desc.get("id")
    for value in (
        "127504384 bytes",
        "oom_score_adj 993",
        "cpu.weight 10",
        "from spec.containers[0].resources.limits.memory",
    ):
        assert value in desc.text
