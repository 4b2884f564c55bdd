"""The kubelet of this machine: its process, its flags, its configuration file and its state files.

Flags win over the file, as in the kubelet. A kubelet in another pid namespace is not seen; then the file at the usual
place is read, if it is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from plimsoll.codec.kernel.cpu_state import cpu_state_from_json
from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError
from plimsoll.codec.lean.lean import json_document
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.errors import InvalidObjectError
from plimsoll.rules.audit.evidence import CpuManagerFacts, KubeletFacts
from plimsoll.rules.config.table import ROWS
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.json_object import JsonObject

ROOT_DIR = "/var/lib/kubelet"
CONFIG_FILE = f"{ROOT_DIR}/config.yaml"
_MOST_BYTES = 1 << 20
_PROBE_S = 5.0
_BY_FLAG = {row.flag: row.name for row in ROWS if row.flag}
_OWN = ("--config", "--config-dir", "--root-dir")


def kubelet_facts() -> tuple[KubeletFacts | None, str]:
    """The configuration, or None and why it cannot be read."""
    arguments = _arguments()
    flags, own = flags_of(arguments)
    path = own.get("--config") or CONFIG_FILE
    document, problem = read_config(path)
    if document is None and not arguments:
        return None, f"no kubelet runs in this pid namespace, and {problem}"
    if document is None:
        return None, problem
    if "--config-dir" in own:
        return None, f"the kubelet merges drop-ins of {own['--config-dir']}: use its /configz (--kubeconfig) instead"
    source = f"{path} and the flags of the running kubelet" if flags else path
    return KubeletFacts(document, source, False, flags), ""


def kubelet_root(arguments: Sequence[str] | None = None) -> str:
    """The directory of its state files: that of the running kubelet, else the usual one."""
    _, own = flags_of(_arguments() if arguments is None else arguments)
    return own.get("--root-dir", ROOT_DIR).rstrip("/") or "/"


def flags_of(arguments: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Flags that are settings, by the name of the setting; and those that say where files are."""
    flags: dict[str, list[str]] = {}
    own: dict[str, str] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        name = f"--{name.lstrip('-').replace('_', '-')}" if name.startswith("-") else ""
        if not name:
            continue
        if not equals:
            text = words.pop(0) if words and not words[0].startswith("-") else "true"
        if name in _OWN:
            own[name] = text
        elif name in _BY_FLAG:
            flags.setdefault(_BY_FLAG[name], []).append(text)
    return flags, own


def _arguments() -> list[str]:
    """The arguments of the running kubelet; empty if none is seen."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            with open(f"/proc/{entry}/comm", encoding="utf-8", errors="replace") as file:
                if file.read().strip() != "kubelet":
                    continue
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                return file.read().split("\0")[1:]
        except OSError:
            continue
    return []


def read_config(path: str) -> tuple[JsonObject | None, str]:
    """The KubeletConfiguration in a file, or None and why it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    documents = list(read(data))
    if len(documents) != 1 or isinstance(documents[0], YamlError) or not isinstance(documents[0].value, dict):
        return None, f"{path}: not one KubeletConfiguration"
    return documents[0].value, ""


def cpu_manager_facts(root: str = ROOT_DIR) -> tuple[CpuManagerFacts | None, str]:
    path = f"{root}/cpu_manager_state"
    try:
        with open(path, "rb") as file:
            state = cpu_state_from_json(file.read(_MOST_BYTES))
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    except CorruptCheckpointError as error:
        return None, f"{path}: {error}"
    owned = {uid: {name: cpu_text(cpus) for name, cpus in each.items()} for uid, each in state.owned.items()}
    return CpuManagerFacts(state.policy, cpu_text(state.shared), owned), ""


def memory_manager_policy(root: str = ROOT_DIR) -> str:
    try:
        with open(f"{root}/memory_manager_state", "rb") as file:
            document = json_document(file.read(_MOST_BYTES))
    except (OSError, InvalidObjectError):
        return ""
    return str(document.get("policyName") or "") if isinstance(document, dict) else ""


def oci_runtime() -> str:
    """`runc 1.3.2`, if exactly one OCI runtime is installed; its version decides the formula of cpu.weight."""
    found = [name for name in ("runc", "crun") if shutil.which(name)]
    if len(found) != 1:
        return ""
    try:
        done = subprocess.run(
            [found[0], "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0][:80]
