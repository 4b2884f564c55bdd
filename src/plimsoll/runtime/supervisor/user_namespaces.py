"""User namespaces of pods: the pod's root is an ordinary user of the host.

A process cannot leave a user namespace again, so a child enters the new one, makes the pod's other namespaces in it
(which then belong to it), and waits until the supervisor has opened them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from plimsoll.linux import namespaces


class Users(NamedTuple):
    """The users 0 … length − 1 of the namespace are those from `first` on of the host."""

    first: int
    length: int


def made_with_users(users: Users, kinds: Iterable[int], prepare: Callable[[], None]) -> dict[int, int]:
    """File descriptors of a new user namespace and of namespaces of these kinds in it; `prepare` runs inside them."""
    answers, say = os.pipe2(os.O_CLOEXEC)
    wait, go_on = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(answers)
        os.close(go_on)
        _inside(say, wait, kinds, prepare)
    os.close(say)
    os.close(wait)
    found: dict[int, int] = {}
    try:
        _check(os.read(answers, 4096))
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                file.write(f"0 {users.first} {users.length}\n")
        os.write(go_on, b"x")
        _check(os.read(answers, 4096))
        for kind in (namespaces.USER, *kinds):
            found[kind] = namespaces.open_namespace(kind, pid)
    except OSError:
        for fd in found.values():
            os.close(fd)
        raise
    finally:
        os.close(answers)
        os.close(go_on)  # the child ends
        os.waitpid(pid, 0)
    return found


def _check(answer: bytes) -> None:
    if answer != b"ok":
        raise OSError(0, f"user namespace: {answer.decode(errors='replace') or 'the process in it has ended'}")


def _inside(say: int, wait: int, kinds: Iterable[int], prepare: Callable[[], None]) -> None:
    """In the child; never returns."""
    try:
        try:
            namespaces.unshare(namespaces.USER)
            os.write(say, b"ok")
            if os.read(wait, 1):
                become_root()
                for kind in kinds:
                    namespaces.unshare(kind)
                prepare()
                os.write(say, b"ok")
                os.read(wait, 1)
        except OSError as error:
            os.write(say, str(error).encode()[:4096])
    finally:
        os._exit(0)


def enter(users: int) -> None:
    """A user namespace (by its fd), as its root: what follows has privileges only over what belongs to it."""
    namespaces.setns(users, namespaces.USER)
    become_root()


def become_root() -> None:
    os.setgroups(())
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
