"""exec, attach, cp, port-forward and debug with one kubectl against one node; both runtimes pass the same checks."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, pod_of, running, status_of
from tests.e2e.waiting import until

Document = dict[str, Any]
Check = Callable[[Kubectl, Path], None]

# The size comes by itself, soon after the start.
RESIZED = 'until [ "$(stty size)" = "33 77" ]; do sleep 0.05; done; echo resized'
# Greets, gives back what it gets, in capitals, until the other side has sent everything; then says goodbye.
GREETING = b"ready "
SHOUT = f'printf "{GREETING.decode()}"; tr a-z A-Z; printf bye'
SERVER = f"for port in 8080 8081; do busybox nc -ll -p $port -e sh -c '{SHOUT}' & done; echo listening; wait"
IMAGE = "busybox"


def make(kube: Kubectl, name: str, *containers: Document, **spec: object) -> Document:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, **spec, "containers": list(containers)},
    }
    kube("apply", "-f", "-", stdin=json.dumps(document))
    return running(kube, name)


def shell(script: str, **more: object) -> Document:
    return {"name": "c", "image": IMAGE, "command": ["sh", "-c", script], **more}


def exec_and_its_streams(kube: Kubectl, tmp: Path) -> None:
    make(kube, "plain", shell("sleep 1000"))
    done = kube.run("exec", "plain", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.code, done.out) == (3, "out\n") and "err\n" in done.err, done
    lines = "".join(f"line {number}\n" for number in range(20_000))
    assert kube("exec", "-i", "plain", "--", "cat", stdin=lines).out == lines
    assert kube("exec", "-i", "plain", "--", "wc", "-c", stdin="12345").out.strip() == "5"  # the end of stdin arrives
    shown = kube.on_a_terminal("exec", "-it", "plain", "--", "sh", "-c", RESIZED, rows=33, columns=77)
    assert "resized" in shown, shown
    shown = kube.on_a_terminal("exec", "-it", "plain", "--", "sh", keys="echo $((6*7)); exit\r")
    assert "42" in shown.split(), shown


def copy_both_ways(kube: Kubectl, tmp: Path) -> None:
    make(kube, "copied", shell("sleep 1000"))
    source = tmp / "source"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(3 << 20))
    (source / "small").write_text("hello\n")
    kube("cp", str(source), "copied:/tmp/there")
    assert kube("exec", "copied", "--", "cat", "/tmp/there/small").out == "hello\n"
    kube("cp", "copied:/tmp/there", str(tmp / "back"))
    for name in ("large", "small"):
        assert (tmp / "back" / name).read_bytes() == (source / name).read_bytes()


def attach_and_run(kube: Kubectl, tmp: Path) -> None:
    make(kube, "talks", shell("while read line; do echo got $line; done", stdin=True, stdinOnce=True))
    assert kube("attach", "-i", "talks", stdin="one\ntwo\n").out == "got one\ngot two\n"
    until(lambda: status_of(kube, "talks", "c").get("restartCount") == 1)  # its stdin ended with the client
    make(kube, "ticks", shell("while :; do echo tick; sleep 0.1; done"))
    with kube.background("attach", "ticks") as following:
        following.wait_for(lambda lines: lines.count("tick") > 3)
    running(kube, "ticks")
    run = ("run", f"--image={IMAGE}", "--restart=Never", "--quiet")
    piped = kube(*run, "piped", "-i", "--rm", "--", "sh", "-c", "cat; echo end", stdin="into it\n")
    assert "into it\nend\n" in piped.out, piped
    failed = kube.run(*run, "failing", "-i", "--rm", "--", "sh", "-c", "cat; exit 7", stdin="x\n")
    assert failed.code == 7, failed
    shown = kube.on_a_terminal(
        *run, "typed", "-it", "--rm", "--", "sh", "-c", f"read a; {RESIZED}; echo $a", rows=33, columns=77, keys="hey\r"
    )
    assert "resized" in shown and shown.split().count("hey") >= 2, shown  # the terminal's echo, and the program's


def port_forward(kube: Kubectl, tmp: Path) -> None:
    make(kube, "serves", shell(SERVER))
    until(lambda: "listening" in kube("logs", "serves").out)
    with kube.background("port-forward", "pod/serves", ":8080", ":8081") as forwarding:
        lines = forwarding.wait_for(lambda lines: sum("127.0.0.1:" in line for line in lines) == 2)
        local = [int(line.split("127.0.0.1:")[1].split()[0]) for line in lines if "127.0.0.1:" in line]
        ends: dict[int, str] = {}
        payload = b"some words " * 40_000
        expected = payload.upper() + b"bye"

        def connected(port: int) -> socket.socket:
            """One after the other: busybox's nc listens with a backlog of 2, and the kernel resets what is beyond."""
            near = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            assert near.recv(len(GREETING), socket.MSG_WAITALL) == GREETING, forwarding.lines
            return near

        def ask(number: int, near: socket.socket) -> None:
            sending = threading.Thread(target=lambda: (near.sendall(payload), near.shutdown(socket.SHUT_WR)))
            sending.start()
            answer, end = b"", ""
            try:
                while data := near.recv(65536):
                    answer += data
            except OSError as error:
                end = f", {error}"
            sending.join()
            ends[number] = "whole" + end if answer == expected else f"{len(answer)} of {len(expected)} bytes{end}"

        with ExitStack() as stack:
            connected(local[0]).sendall(b"x" * 200_000)  # one that never reads what it gets, beside the others
            nears = [connected(local[number % 2]) for number in range(12)]
            asking = [threading.Thread(target=ask, args=each) for each in enumerate(nears)]
            for each in asking:
                each.start()
            for each in asking:
                each.join()
        assert ends == dict.fromkeys(range(12), "whole"), (ends, forwarding.lines)
    with kube.background("port-forward", "pod/serves", ":9") as refused:
        lines = refused.wait_for(lambda lines: any("127.0.0.1:" in line for line in lines))
        port = int(next(line for line in lines if "127.0.0.1:" in line).split("127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as near:
            assert near.recv(10) == b""
        shown = "\n".join(
            refused.wait_for(lambda lines: any("error forwarding port 9 to pod" in line for line in lines))
        )
        assert "localhost:9" in shown and "refused" in shown, shown


def debug(kube: Kubectl, tmp: Path) -> None:
    make(kube, "target", shell("exec sleep 1234"))
    words = ("debug", "target", f"--image={IMAGE}", "--target=c", "-c", "shell", "-it", "--quiet")
    script = "read line; echo got $line; tr '\\0' ' ' < /proc/1/cmdline"
    shown = kube.on_a_terminal(*words, "--", "sh", "-c", script, keys="typed\r")
    assert "got typed" in shown and "sleep 1234" in shown, shown
    (status,) = until(lambda: status_of(kube, "target").get("ephemeralContainerStatuses") or [])
    until(lambda: _ended(kube, "target", "shell") == 0)
    assert status_of(kube, "target", "c")["restartCount"] == 0 and status["name"] == "shell"
    assert pod_of(kube, "target")["status"]["qosClass"] == "BestEffort"
    kube("debug", "target", f"--image={IMAGE}", "--copy-to=copy", "--", "sleep", "1000")
    assert len(running(kube, "copy")["containerStatuses"]) == 2
    made = kube("debug", f"node/{NODE}", f"--image={IMAGE}", "--", "sleep", "1000")
    debugger = next(word for word in (made.out + made.err).split() if word.startswith("node-debugger-"))
    running(kube, debugger)
    assert kube("exec", debugger, "--", "cat", "/host/etc/os-release").out == Path("/etc/os-release").read_text()


def _ended(kube: Kubectl, pod: str, container: str) -> int | None:
    for status in status_of(kube, pod).get("ephemeralContainerStatuses") or ():
        if status["name"] == container and (ended := status["state"].get("terminated")):
            code: int = ended["exitCode"]
            return code
    return None


CHECKS: dict[str, Check] = {
    "exec": exec_and_its_streams,
    "cp": copy_both_ways,
    "attach": attach_and_run,
    "port-forward": port_forward,
    "debug": debug,
}
