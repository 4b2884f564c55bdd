"""The dashboard's files: vendored ones as their packages have them, own ones without what the policy forbids."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import plimsoll.web
from plimsoll.codec.live_page import COLUMNS
from plimsoll.web.incident import MODULES, incident_page
from plimsoll.web.site import static_file

STATIC = Path(plimsoll.web.__file__).with_name("static")
VENDOR = STATIC / "vendor"
OWN = sorted(STATIC.glob("*.js"))
_DEFINED = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
_IMPORTED = re.compile(r"^import (?:\{([^}]*)\} from )?'\./([\w.]+)'", re.MULTILINE)


def test_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    others = {file for entry in manifest.values() for file in entry["texts"]} | {"manifest.json", "README.txt"}
    assert {file.name for file in VENDOR.iterdir()} == manifest.keys() | others
    for name, entry in manifest.items():
        data = (VENDOR / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], name
        assert entry["version"] and entry["licence"] in ("MIT", "Apache-2.0")
        assert all((VENDOR / text).stat().st_size > 500 for text in entry["texts"])


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_own_modules_put_no_markup_into_the_page(file: Path) -> None:
    text = file.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "dangerously",
    ):
        assert word not in text, word


def test_the_browser_knows_the_columns() -> None:
    text = (STATIC / "state.js").read_text()
    listed = re.search(r"COLUMNS = \[(.*?)\];", text, re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r"'(\w+)'", listed[1])) == COLUMNS


def test_modules_of_an_incident_can_share_one_scope() -> None:
    """No two define the same name, and each finds what it imports in one before it, except session functions."""
    seen: set[str] = set()
    for name in MODULES:
        text = (STATIC / name).read_text()
        for names, source in _IMPORTED.findall(text):
            assert source in MODULES[: MODULES.index(name)] or source == "session.js", (name, source)
            assert " as " not in names
        defined = [*_DEFINED.findall(text)]
        if name == "ui.js":
            defined = re.findall(r"\w+", re.search(r"\{(.*?)\}", text, re.DOTALL)[1])  # type: ignore[index]
        assert not seen & set(defined), (name, seen & set(defined))
        seen |= set(defined)


def test_an_incident_contains_everything_and_no_text_can_leave_its_data() -> None:
    hostile = json.dumps({"frames": [{"marks": [{"text": "</script><script>alert(1)</script><!--"}]}]})
    page = incident_page("<n1>", hostile.encode(), 0.0).decode()
    assert page.count("<script") == 4 and page.count("</script>") == 4  # data, two libraries, own modules
    assert "alert(1)</script" not in page and "&lt;n1&gt;" in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "unsafe" not in policy[1] and policy[1].count("sha256-") == 4
    assert not re.search(r"^(import|export) ", page, re.MULTILINE)
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", page)


def test_only_known_files_are_served() -> None:
    assert static_file("") is static_file("index.html") is not None
    for path in ("../site.py", "vendor", "vendor/../index.html", "__init__.py", "style.css/"):
        assert static_file(path) is None, path
