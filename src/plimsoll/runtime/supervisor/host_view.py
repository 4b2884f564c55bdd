"""What containers see of the host: an allow-list. Programs and libraries, and copies of chosen files of /etc.

The directory that `directory` returns is the lowest layer of every container without an image of its own: the top
directories, empty, links such as /bin → usr/bin, and an /etc with copies. The directories in PROGRAMS are added as
further layers. Everything else of the host, and whatever appears on it later, does not exist in a container.
"""

from __future__ import annotations

import os
import stat
import time

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
VERSION = 2  # of the view; 1 showed the host's root without some paths
WRITABLE = {"tmp": 0o1777, "var/tmp": 0o1777}
DIRECTORIES = (
    "dev", "etc", "home", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var", "var/cache",
    "var/lib", "var/log", "var/tmp",
)  # fmt: skip
# What programs need to look up names, load libraries and check certificates. Nothing that may contain credentials:
# no environment, no settings of package managers, no host keys.
ETC = (
    "alternatives", "bash.bashrc", "ca-certificates.conf", "crypto-policies", "debian_version", "ethertypes",
    "fonts", "gai.conf", "group", "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "locale.conf", "localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mime.types", "mtab", "networks",
    "nsswitch.conf", "os-release", "passwd", "perl", "pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs",
    "pki/tls/openssl.cnf", "profile", "protocols", "redhat-release", "rpc", "services", "shells", "ssl/certs",
    "ssl/cert.pem", "ssl/openssl.cnf", "system-release", "terminfo", "timezone", "xattr.conf",
)  # fmt: skip
ETC_PREFIXES = ("java-", "python3")
MAX_FILE_BYTES = 2 << 20
_CHECK_S = 2.0
_Stamp = tuple[object, ...]


class _Built:
    """The directory of one state directory, as it was built last."""

    def __init__(self) -> None:
        self.path, self.stamp, self.checked_s = "", (), 0.0

    path: str
    stamp: _Stamp
    checked_s: float


_built: dict[str, _Built] = {}


def directory(state: str) -> str:
    """The lowest layer, below `state`; built again when a file that it copies has changed. Running containers keep the
    one they began with."""
    built = _built.setdefault(state, _Built())
    now_s = time.monotonic()
    if built.path and now_s < built.checked_s + _CHECK_S:
        return built.path
    stamp = _stamp()
    if stamp != built.stamp or not built.path:
        if not built.path:
            _remove_old(state)
        built.path = _build(state)
        built.stamp = stamp
    built.checked_s = now_s
    return built.path


def program_directories() -> tuple[str, ...]:
    """Those that are directories; on most systems all but /usr are links into it."""
    return tuple(path for path in PROGRAMS if os.path.isdir(path) and not os.path.islink(path))


def _etc_names() -> list[str]:
    try:
        listed = [name for name in os.listdir("/etc") if name.startswith(ETC_PREFIXES)]
    except OSError:
        listed = []
    return sorted({*ETC, *listed})


def _stamp() -> _Stamp:
    found: list[object] = []
    for path in (*PROGRAMS, *(f"/etc/{name}" for name in _etc_names())):
        try:
            seen = os.stat(path, follow_symlinks=False)
        except OSError:
            continue
        found.append((path, seen.st_ino, seen.st_mtime_ns, seen.st_size if stat.S_ISREG(seen.st_mode) else 0))
    return tuple(found)


def _remove_old(state: str) -> None:
    """Of an earlier supervisor, whose containers have ended with it."""
    for name in os.listdir(state):
        if name.startswith("view-"):
            _remove(os.path.join(state, name))


def _remove(path: str) -> None:
    """Our own copies, in a directory that only we write to."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in (*files, *folders):
            inside = os.path.join(folder, name)
            os.rmdir(inside) if name in folders and not os.path.islink(inside) else os.unlink(inside)
    os.rmdir(path)


def _build(state: str) -> str:
    for number in range(1_000_000):
        top = os.path.join(state, f"view-{number}")
        try:
            os.mkdir(top, 0o755)
            break
        except FileExistsError:
            continue
    else:
        raise OSError(f"{state} has too many views")
    os.chmod(top, 0o755)
    for path in PROGRAMS:
        target = top + path
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        elif os.path.isdir(path):
            _make_directory(target, 0o755)
    for name in DIRECTORIES:
        _make_directory(os.path.join(top, name), WRITABLE.get(name, 0o755))
    os.symlink("/run", os.path.join(top, "var/run"))
    for name in _etc_names():
        parent = os.path.join(top, "etc", os.path.dirname(name))
        if os.path.lexists(f"/etc/{name}"):
            os.makedirs(parent, exist_ok=True)
            _copy(f"/etc/{name}", os.path.join(top, "etc", name))
    for folder, _, _ in os.walk(os.path.join(top, "etc")):
        os.chmod(folder, 0o755)
    return top


def _make_directory(path: str, mode: int) -> None:
    os.mkdir(path)
    os.chmod(path, mode)


def _copy(source: str, target: str, depth: int = 0) -> None:
    """Only what every user of the host may read; links into the view stay links, others become what they lead to."""
    if os.path.islink(source):
        link = os.readlink(source)
        real = os.path.realpath(source)
        if depth or any(real.startswith(f"{path}/") for path in (*PROGRAMS, "/proc")):
            os.symlink(link, target)
            return
        source = real
    try:
        seen = os.stat(source)
    except OSError:
        return
    if stat.S_ISDIR(seen.st_mode) and seen.st_mode & 0o005 == 0o005 and depth < 8:
        os.mkdir(target)
        for name in os.listdir(source):
            _copy(os.path.join(source, name), os.path.join(target, name), depth + 1)
    elif stat.S_ISREG(seen.st_mode) and seen.st_mode & 0o004 and seen.st_size <= MAX_FILE_BYTES:
        with open(source, "rb") as reading, open(target, "xb") as writing:
            writing.write(reading.read(MAX_FILE_BYTES))
        os.chmod(target, stat.S_IMODE(seen.st_mode) & 0o755)
