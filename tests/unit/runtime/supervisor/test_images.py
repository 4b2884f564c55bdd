"""What an image's name stands for without a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.runtime.supervisor.images import NoImageError, Program, bundled, program, resolved, short_name


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "nginx"),
        ("nginx:1.25", "nginx"),
        ("docker.io/library/nginx:1.25", "nginx"),
        ("docker.io/nginx", "nginx"),
        ("library/nginx", "nginx"),
        ("nginx@sha256:" + "0" * 64, "nginx"),
        ("registry.k8s.io/pause:3.9", "pause"),
        ("localhost:5000/nginx:latest", "nginx"),
        ("localhost/nginx", "nginx"),
        ("someone/nginx", "someone/nginx"),
        ("quay.io/some/one/nginx:x", "some/one/nginx"),
    ],
)
def test_short_name(image: str, name: str) -> None:
    assert short_name(image) == name


@pytest.mark.parametrize(
    ("image", "has_command", "ref"),
    [
        ("nginx:1.25", False, "plimsoll:nginx"),
        ("registry.k8s.io/pause:3.9", False, "plimsoll:pause"),
        ("ubuntu", False, "plimsoll:ubuntu"),
        ("nginx", True, "host"),
        ("unknown/image:1", True, "host"),
        ("my/app:v2", False, "host:/bin/echo 'a b'"),
        ("my/app:v2", True, "host"),
    ],
)
def test_resolved(image: str, has_command: bool, ref: str) -> None:
    found = resolved(image, {"my/app": "/bin/echo 'a b'"}, has_command=has_command)
    assert found.ref == ref
    assert repr(image) in found.note
    assert program(ref).argv(("x",), ("y",)) == ("x", "y")


def test_what_is_mapped_comes_before_what_is_bundled() -> None:
    assert resolved("nginx:1.25", {"nginx": "/usr/sbin/nginx"}, has_command=False).ref == "host:/usr/sbin/nginx"
    assert resolved("nginx:1.25", {"nginx:1.25": "/a", "nginx": "/b"}, has_command=False).ref == "host:/a"


def test_a_directory(tmp_path: Path) -> None:
    root = tmp_path / "a root"
    root.mkdir()
    found = resolved(f"dir:{root}", {}, has_command=True)
    assert program(found.ref) == Program(str(root))
    assert found.note == ""  # it is not ignored
    mapped = resolved("app", {"app": f"dir:'{root}' /bin/app -v"}, has_command=False)
    assert program(mapped.ref) == Program(str(root), ("/bin/app", "-v"))


@pytest.mark.parametrize(
    ("image", "has_command", "says"),
    [
        ("redis:7", False, "Give the container a `command`"),
        ("dir:/no/such/root", True, "no directory '/no/such/root'"),
        ("dir:relative", True, "absolute path"),
        ("dir:/usr", False, "no command of its own"),
    ],
)
def test_no_image_says_what_to_do(image: str, has_command: bool, says: str) -> None:
    with pytest.raises(NoImageError, match=says):
        resolved(image, {}, has_command=has_command)


def test_argv_as_kubernetes_combines_it() -> None:
    image = Program("", ("entry",), ("default",))
    assert image.argv((), ()) == ("entry", "default")
    assert image.argv((), ("a",)) == ("entry", "a")
    assert image.argv(("c",), ()) == ("c",)
    assert image.argv(("c",), ("a",)) == ("c", "a")


def test_every_bundled_image_has_a_command() -> None:
    assert all(image.argv((), ()) for image in bundled().values())
