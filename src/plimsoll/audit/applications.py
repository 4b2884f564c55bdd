"""Which language runtime a process uses, its version, and its settings, from /proc.

Only settings that concern memory, CPUs and threads are read, and only values that look like numbers or switches: an
environment contains secrets. Files of the container are opened below its own root, so that no link leads out of it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable

from plimsoll.linux.cgroup_files import NO_MAGICLINKS, open_beneath
from plimsoll.rules.applications.answer import App
from plimsoll.rules.audit.evidence import Application

_IN_ROOT = 0x10  # RESOLVE_IN_ROOT: links are resolved below the directory
_MOST_BYTES = 1 << 16
_MAPS_BYTES = 1 << 20
_VALUE = re.compile(r"[A-Za-z0-9.%]{1,24}", re.ASCII)
_JVM_FLAG = re.compile(
    r"-(?:(?P<heap>Xmx)(?P<size>\d+[kmgKMG]?)"
    r"|XX:(?P<name>MaxRAMPercentage|MinRAMPercentage|MaxHeapSize|ActiveProcessorCount)=(?P<value>[0-9.]+[kmgKMG]?)"
    r"|XX:(?P<switch>[+-])UseContainerSupport)"
)
_NODE_FLAG = re.compile(r"--(max[-_]old[-_]space[-_]size)[= ](\d+)")
_JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JAVA_OPTS")
_PLAIN_VARIABLES: dict[str, tuple[App, str]] = {
    "GOMAXPROCS": ("go", "GOMAXPROCS"),
    "GOMEMLIMIT": ("go", "GOMEMLIMIT"),
    "UV_THREADPOOL_SIZE": ("node", "UV_THREADPOOL_SIZE"),
    **{
        f"{prefix}{name}": ("dotnet", name)
        for prefix in ("DOTNET_", "COMPlus_")
        for name in ("GCHeapHardLimit", "GCHeapHardLimitPercent", "gcServer", "PROCESSOR_COUNT")
    },
}
_JVM_LIBRARY = re.compile(r"(?P<home>/\S*?)(?:/jre)?/lib(?:/[a-z0-9_]+)?/server/libjvm\.so")
_DOTNET_LIBRARY = re.compile(r"/Microsoft\.NETCore\.App/(?P<version>\d[0-9.]*)[^/]*/libcoreclr\.so")
_JAVA_VERSION = re.compile(r'JAVA_VERSION="([^"]{1,40})"')
_NODE_PART = re.compile(r"#define NODE_(MAJOR|MINOR|PATCH)_VERSION (\d+)")
_NODE_HEADERS = ("usr/local/include/node/node_version.h", "usr/include/node/node_version.h")
_NODE_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)")
_GO_VERSION = re.compile(rb"go1\.\d+(?:\.\d+)?")


def application(pid: int, name: str) -> Application | None:
    """None for a process without one of these runtimes, or whose files cannot be read."""
    executable = _link(f"/proc/{pid}/exe")
    program = os.path.basename(executable.removesuffix(" (deleted)")) or name
    if program == "java":
        home = _JVM_LIBRARY.search(_text(f"/proc/{pid}/maps", _MAPS_BYTES))
        release = _in_root(pid, f"{home['home'].lstrip('/')}/release") if home is not None else ""
        version = _JAVA_VERSION.search(release)
        return Application("jvm", version[1] if version is not None else "", _jvm_settings(pid))
    if program in ("node", "nodejs"):
        variables = _variables(pid)
        return Application("node", _node_version(pid, variables), _node_settings(pid, variables))
    found = _DOTNET_LIBRARY.search(_text(f"/proc/{pid}/maps", _MAPS_BYTES)) if program else None
    if found is not None:
        return Application("dotnet", found["version"], _plain("dotnet", _variables(pid)))
    go = go_version(f"/proc/{pid}/exe")
    if go:
        variables = _variables(pid)
        settings = _plain("go", variables)
        if "containermaxprocs=0" in variables.get("GODEBUG", "").split(","):
            settings["containermaxprocs"] = "0"
        return Application("go", go, settings)
    return None


def _jvm_settings(pid: int) -> dict[str, str]:
    """Flags of the command line win over those of the environment, except _JAVA_OPTIONS, which is read last."""
    variables = _variables(pid)
    words: list[str] = []
    for name in _JVM_VARIABLES[:2]:
        words += variables.get(name, "").split()
    words += _text(f"/proc/{pid}/cmdline", _MOST_BYTES).split("\0")
    words += variables.get("_JAVA_OPTIONS", "").split()
    return jvm_flags(words)


def jvm_flags(words: Iterable[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in words:
        flag = _JVM_FLAG.fullmatch(word)
        if flag is None:
            continue
        if flag["heap"]:
            settings["Xmx"] = flag["size"]
        elif flag["name"]:
            settings[flag["name"]] = flag["value"]
        else:
            settings["UseContainerSupport"] = flag["switch"]
    return settings


def _node_settings(pid: int, variables: dict[str, str]) -> dict[str, str]:
    line = f"{variables.get('NODE_OPTIONS', '')} {_text(f'/proc/{pid}/cmdline', _MOST_BYTES).replace(chr(0), ' ')}"
    settings = _plain("node", variables)
    for found in _NODE_FLAG.finditer(line):
        settings["max-old-space-size"] = found[2]
    return settings


def _node_version(pid: int, variables: dict[str, str]) -> str:
    for header in _NODE_HEADERS:
        parts = dict(_NODE_PART.findall(_in_root(pid, header)))
        if len(parts) == 3:
            return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    found = _NODE_VERSION.fullmatch(variables.get("NODE_VERSION", ""))
    return found[1] if found is not None else ""


def _plain(app: App, variables: dict[str, str]) -> dict[str, str]:
    return {
        setting: variables[name]
        for name, (owner, setting) in _PLAIN_VARIABLES.items()
        if owner == app and _VALUE.fullmatch(variables.get(name, ""))
    }


def go_version(executable: str) -> str:
    """From the section .go.buildinfo that the linker writes; empty for other programs."""
    try:
        with open(executable, "rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return ""
            (offset,) = struct.unpack_from("<Q", head, 40)
            size, count, names = struct.unpack_from("<HHH", head, 58)
            if size != 64 or not 0 < count <= 512 or names >= count:
                return ""
            file.seek(offset)
            sections = [struct.unpack("<IIQQQQIIQQ", each) for each in _pieces(file.read(size * count), size)]
            file.seek(sections[names][4])
            table = file.read(min(sections[names][5], _MOST_BYTES))
            for section in sections:
                if table[section[0] :].startswith(b".go.buildinfo\0"):
                    file.seek(section[4])
                    found = _GO_VERSION.search(file.read(min(section[5], 4096)))
                    return found[0].decode() if found is not None else ""
    except (OSError, struct.error, IndexError):
        return ""
    return ""


def _pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def _variables(pid: int) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in _text(f"/proc/{pid}/environ", _MOST_BYTES).split("\0"))
    return {name: value for name, _, value in pairs}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(path: str, most: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _in_root(pid: int, path: str) -> str:
    """A file below the root of the process; links stay below it."""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fd = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK, _IN_ROOT | NO_MAGICLINKS)
        try:
            return os.read(fd, _MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(fd)
    except OSError:
        return ""
    finally:
        os.close(root)
