"""`./dev package [DIR]`: writes the zipapp, the krew manifest for it and the man pages to DIR (dist).

The wheel is written by `python -m hatchling build`; the image by deploy/Containerfile.
"""

from __future__ import annotations

import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from plimsoll import __version__
from plimsoll.cli.objects.man import manual_pages

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "deploy"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
EPOCH = (2020, 1, 1, 0, 0, 0)  # the same contents give the same file
SHEBANG = b"#!/usr/bin/env python3\n"


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        problem = installed(site)
        if problem:
            print(problem, file=sys.stderr)
            return 1
        file = target / f"plimsoll-{__version__}-py{PYTHON}-{platform.machine()}.pyz"
        file.write_bytes(archive(site))
        file.chmod(0o755)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
    manifest = target / "plimsoll-krew.yaml"
    tarball = target / f"kubectl-plimsoll-{__version__}-{platform.machine()}.tar.gz"
    tarball.write_bytes(plugin(file.read_bytes()))
    text = (HERE / "krew" / "plimsoll.yaml").read_text()
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    manifest.write_text(text.replace("VERSION", __version__).replace("SHA256", digest).replace("FILE", tarball.name))
    print(f"{manifest}")
    pages = target / "man"
    pages.mkdir(exist_ok=True)
    for name, page in manual_pages().items():
        (pages / f"{name}.1").write_text(page)
    print(f"{pages}: {len(list(pages.iterdir()))} pages")
    return 0


def installed(site: Path) -> str:
    """Plimsoll and its locked packages in a directory; or why not."""
    dev = _dev()
    uv, problem = dev.find_uv()
    if not uv:
        return str(problem)
    options = ["--quiet", "--target", str(site), "--python", sys.executable, "--only-binary", ":all:"]
    locked = ["--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt")]
    problem = dev.install_problem_of([uv, "pip", "install", *options, *locked])
    if problem:
        return str(problem)
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if built.returncode or not wheels:
            return built.stderr
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(site)
    return ""


def _dev() -> ModuleType:
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = spec_from_loader("dev", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def archive(site: Path) -> bytes:
    files = sorted(path for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(site)}\0".encode())
        digest.update(path.read_bytes())
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        add(made, "__main__.py", (HERE / "zipapp" / "__main__.py").read_bytes())
        add(made, "BUILT_FOR", f"{PYTHON} {platform.machine()} {digest.hexdigest()[:20]}".encode())
        for path in files:
            add(made, f"site/{path.relative_to(site).as_posix()}", path.read_bytes())
    return buffer.getvalue()


def add(made: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    made.writestr(entry, data)


def plugin(data: bytes) -> bytes:
    """What krew unpacks: one program."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content, mode in (
            ("kubectl-plimsoll", data, 0o755),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            made.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
