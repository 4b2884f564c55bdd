"""The first process of a container: `python -m plimsoll.attach.first_process PROGRAM ARGUMENT…`

The kernel kills all processes of a PID namespace with its PID 1, and a container runtime does the same if the namespace
is the host's. So a program that is the first process leaves no time to one beside it. This one starts the program,
passes signals on to it, and ends when it and all that it has started have ended, with its exit code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from plimsoll.linux.namespaces import become_subreaper

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and an ignored signal stays ignored after execve


def main(command: Sequence[str]) -> int:
    become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a process that gets them
    try:
        program = os.posix_spawnp(command[0], list(command), os.environ, setsigmask=(), setsigdef=_RESET)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    running = [program]

    def pass_on(number: int, _: object) -> None:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == program:
            running.clear()
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
