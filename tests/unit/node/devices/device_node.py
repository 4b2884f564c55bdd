"""A process with the resource managers of a node, for proofs that kill it: one command per line, one answer each.

add UID COUNT     → the devices, or a refusal
known UID COUNT   → the devices of a pod that was admitted before the process was killed
keep UID…         → releases the devices of all other pods
size              → capacity and allocatable
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.unit.node.devices.example_plugin import RESOURCE
from tests.unit.node.devices.test_device_manager import Node, pod


async def answer(node: Node, words: list[str]) -> str:
    match words:
        case ["add", uid, count]:
            return await node.give(uid, int(count))
        case ["known", uid, count]:
            asked = pod(uid, int(count))
            if node.managers.waits_for_devices(asked):
                return "unknown"
            refusal = node.managers.refusal(asked, trusts=True)
            if refusal is not None:
                return refusal.event_text
            return " ".join(sorted(node.manager.devices_of(uid, "c").get(RESOURCE, ())))
        case ["keep", *uids]:
            node.manager.retain(uids)
            return "kept"
        case ["size"]:
            return " ".join(map(str, node.manager.sizes().get(RESOURCE, (0, 0))))
    return "?"


async def main(directory: Path) -> None:
    node = Node(directory)
    await node.manager.open()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("open", flush=True)
    while line := await reader.readline():
        print(await answer(node, line.decode().split()), flush=True)
    await node.manager.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
