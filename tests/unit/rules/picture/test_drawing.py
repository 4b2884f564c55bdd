"""Layout and writing: everything is inside the drawing, labels do not overlap, hostile names are inert."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.rules.cgroups.desired import workload
from plimsoll.rules.explain.explanation import explanation
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.picture.explained import explained_picture
from plimsoll.rules.picture.figure import Drawing, comparison, drawing
from plimsoll.rules.picture.page import page
from plimsoll.rules.picture.rows import table_rows
from plimsoll.rules.picture.shapes import Group, Rect, Shape, Stroke, Text, cut, spread, text_width, wrapped
from plimsoll.rules.picture.svg import svg
from plimsoll.rules.picture.tank import Scale
from tests.unit.console import run
from tests.unit.strategies import Json, lean, node_settings, valid_pods

HOSTILE = {
    "html": '"><script>alert(1)</script>',
    "entity": "&lt;b&gt;&#x202e;",
    "ansi": "\x1b[31mred\x07",
    "bidi": "safe\u202etxt.exe\u2066",
    "nul and surrogate": "a\x00b\ud800c\ufffe",
    "long": "x" * 253,
    "quotes": "a'b\"c`d",
    "newline": "a\nb\r\u2028c",
}


def boxes(shape: Shape, x: float = 0, y: float = 0) -> Iterator[tuple[float, float, float, float]]:
    """left, top, right, bottom of everything that is drawn."""
    match shape:
        case Rect(at, top, width, height):
            yield x + at, y + top, x + at + width, y + top + height
        case Stroke(points):
            yield (
                x + min(p[0] for p in points),
                y + min(p[1] for p in points),
                x + max(p[0] for p in points),
                y + max(p[1] for p in points),
            )
        case Text(at, base, _, _, anchor):
            width = 0 if anchor != "start" else 1
            yield x + at, y + base - 5, x + at + width, y + base
        case Group(at, top, shapes):
            for inner in shapes:
                yield from boxes(inner, x + at, y + top)


def inside(found: Drawing) -> None:
    for left, top, right, bottom in (box for shape in found.shapes for box in boxes(shape)):
        assert left >= 0 and top >= 0 and right <= found.width and bottom <= found.height


@given(st.lists(valid_pods(), min_size=1, max_size=4), node_settings())
def test_any_pod_on_any_node_is_drawn_inside_its_drawing(documents: list[Json], setting: NodeConfig) -> None:
    works = [workload(lean(each), setting, title=f"p{index}") for index, each in enumerate(documents)]
    picture = explained_picture(explanation(works, setting), setting)
    found = drawing(picture)
    inside(found)
    inside(comparison(picture, picture, ("a", "b")))
    ElementTree.fromstring(svg(found))
    shown = sum(1 for vessel in picture.everything() if vessel.level == "container")
    assert shown == sum(len(work.containers) for work in works)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(5, 40)), min_size=1, max_size=8))
def test_labels_do_not_overlap_and_keep_their_order(wanted: list[tuple[float, float]]) -> None:
    wanted.sort()
    targets, heights = [each[0] for each in wanted], [each[1] for each in wanted]
    assume(sum(heights) <= 320)
    tops = spread(targets, heights, -10, 310)
    assert tops[0] >= -10 - 1e-6 and tops[-1] + heights[-1] <= 310 + 1e-6
    for above, height, below in zip(tops, heights, tops[1:], strict=False):
        assert below >= above + height - 1e-6


@given(st.integers(1, 1 << 44), st.lists(st.integers(0, 1 << 44), min_size=2), st.integers(2, 1 << 43))
def test_scale_is_monotonic_and_stays_in_its_length(full: int, amounts: list[int], knee: int) -> None:
    for scale in (Scale(full, 200.0), Scale(full, 200.0, knee) if knee < full else Scale(full, 200.0)):
        heights = [scale.at(amount) for amount in sorted(amounts)]
        assert heights == sorted(heights) and heights[0] >= 0 and heights[-1] <= 200.0 + 1e-9
        assert scale.at(full) == pytest.approx(200.0)


@given(st.text(max_size=80), st.floats(30, 300))
def test_texts_fit_their_width(text: str, width: float) -> None:
    assume(text.strip())
    assert text_width(cut(text, width, 10), 10) <= width
    lines = wrapped(text, width, 10, most=3)
    assert len(lines) <= 3 and all(text_width(line, 10) <= width for line in lines)


def hostile_pod(text: str) -> Json:
    """Fields that the API server would refuse are read as they are."""
    return {
        "metadata": {"name": "p", "namespace": text},
        "spec": {"containers": [{"name": text, "image": "i", "resources": {"requests": {"memory": "64Mi"}}}]},
    }


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_inert(text: str) -> None:
    from tests.unit.rules.explain.test_explanation import setting_of

    setting = setting_of({"featureGates": {"MemoryQoS": True}}, profile="documents")
    work = workload(lean(hostile_pod(text)), setting, title=text)
    found = drawing(explained_picture(explanation([work], setting), setting))
    for written in (svg(found), page(found)):
        assert not re.search(r"<(?:script|b|a|img|iframe|foreignObject)\b|\son\w+=|javascript:|href=", written)
        assert not re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufffe\ud800-\udfff]",
            written,
        )
        written.encode()  # no surrogates
    root = ElementTree.fromstring(svg(found))
    assert all(element.tag.rpartition("}")[2] in ELEMENTS for element in root.iter())


ELEMENTS = {"svg", "title", "desc", "style", "defs", "pattern", "rect", "path", "circle", "text", "g"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.styles: list[str] = []
        self.cells: list[str] = []
        self.policy = ""
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        given = dict(attrs)
        assert not {"style", "src", "href", "onload", "onclick"} & set(given)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.styles.append(data)
        elif self.inside == "td":
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def test_page_needs_nothing_else_and_has_the_table() -> None:
    ran = run(
        "explain",
        "-",
        "--capacity",
        "cpu=4,memory=8Gi",
        "-o",
        "html",
        stdin=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
                },
            }
        ),
    )
    assert ran.code == 0, ran.err
    reader = Reader()
    reader.feed(ran.out)
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in reader.styles}
    assert hashes == set(re.findall(r"'sha256-[^']+'", reader.policy)) and len(hashes) == 2
    assert "default-src 'none'" in reader.policy and "unsafe" not in reader.policy
    assert "1073741824 (1.0 GiB)" in reader.cells
    assert "spec.containers[0].resources.limits.memory" in reader.cells


def test_table_has_a_row_for_every_line() -> None:
    from tests.unit.rules.explain.test_explanation import explained, pod, setting_of

    setting = setting_of({"featureGates": {"MemoryQoS": True}}, profile="documents")
    block = {"requests": {"memory": "64Mi", "cpu": "250m"}, "limits": {"memory": "128Mi"}}
    picture = explained_picture(explained(pod(block), setting), setting)
    rows = table_rows(picture)
    assert sum(len(vessel.lines) for vessel in picture.everything()) == sum(
        row.file.startswith("memory.") for row in rows
    )
    assert any(row.file == "memory.high" and row.declared.startswith("127504384 ") for row in rows)


def test_one_style_per_line_without_colour() -> None:
    """In black and white the four lines differ in width or dashes."""
    from plimsoll.rules.picture.style import sheet

    shapes = sheet().partition("@media")[0]
    widths = {}
    for name in ("min", "low", "high", "max"):
        rule = re.search(rf"^\.line\.{name}\{{(?!stroke:)(.*)\}}$", shapes, re.MULTILINE)
        widths[name] = rule[1] if rule else ""
    assert len(set(widths.values())) == 4
    fills = set(re.findall(r"^\.fill\.(\w+)\{fill:url", shapes, re.MULTILINE))
    assert fills == {"shmem", "kernel", "activeFile", "inactiveFile"}  # anon and other are plain: dark and light
