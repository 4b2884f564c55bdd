"""Starts a node with the given command and at SIGUSR2 wakes every worker once; writes the cost of that to a file.

python woken_node.py FILE plimsoll node …
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from plimsoll.cli.main import main
from plimsoll.node import assembly
from plimsoll.node.agent import Agent


async def _all_woken(agent: Agent, answer: Path) -> None:
    """Until no worker is in a sync, so that only the loop's own work is left."""
    before = time.process_time()
    agent.pods.wake()
    await asyncio.sleep(0.5)
    result = {"cpu_ms": (time.process_time() - before) * 1e3, "pods": len(agent.pods.workers)}
    fresh = answer.with_suffix(".new")
    fresh.write_text(json.dumps(result))
    fresh.rename(answer)


class WokenNode(assembly.NodeProcess):
    answer: Path

    async def run(self, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def wake() -> None:
            task = asyncio.create_task(_all_woken(self.agent, self.answer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, wake)
        await super().run(stop, announce)


if __name__ == "__main__":
    WokenNode.answer = Path(sys.argv[1])
    setattr(assembly, "NodeProcess", WokenNode)  # noqa: B010
    sys.argv = sys.argv[2:]
    sys.exit(main())
