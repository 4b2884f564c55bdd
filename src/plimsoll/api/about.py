"""What the server says about itself: /version, and the health endpoints that anybody may ask (05 B1, B3)."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import plimsoll
from plimsoll.api.output import line
from plimsoll.rules.profile import Profile

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


def git_version(profile: Profile) -> str:
    """`v1.27.0+plimsoll.X`, as kubelets report it too."""
    return f"v{profile.name}.0+plimsoll.{plimsoll.__version__}"


def version_body(profile: Profile) -> bytes:
    major, minor = profile.name.split(".")
    document = {
        "major": major,
        "minor": minor,
        "gitVersion": git_version(profile),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"linux/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }
    return line(document)


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def health(path: str, faults: Mapping[str, str], *, verbose: bool) -> tuple[int, bytes]:
    """`faults` has every check by name, empty where it passed."""
    failed = [name for name, fault in faults.items() if fault]
    if not failed and not verbose:
        return 200, b"ok"
    lines = [f"[-]{name} failed: {fault}" if fault else f"[+]{name} ok" for name, fault in faults.items()]
    end = path.lstrip("/")
    lines.append(f"{end} check failed" if failed else f"{end} check passed")
    return (500 if failed else 200), ("\n".join(lines) + "\n").encode()
