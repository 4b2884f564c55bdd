"""PSI triggers of single cgroups on v2: the one that stalls fires, its neighbour does not.

Plain Python: pytest takes long to start in QEMU.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(PROJECT / "src")]

from plimsoll.cgroups.drivers.v2 import CgroupsV2  # noqa: E402
from plimsoll.cgroups.stats.live_tree import live_tree  # noqa: E402
from plimsoll.cgroups.stats.notifications import CgroupWatcher  # noqa: E402
from plimsoll.linux.cgroup_files import CgroupError  # noqa: E402

MIB = 1 << 20
# Anonymous memory above memory.high is reclaimed in vain: the task is slowed down, which is a memory stall.
STALLS = "m = bytearray(64 << 20)\nwhile True:\n    for at in range(0, len(m), 4096): m[at] = 1"


async def main() -> None:
    driver = CgroupsV2()
    for name in ("/plimsoll-test-psi", "/plimsoll-test-psi/stalls", "/plimsoll-test-psi/calm"):
        await driver.make(name)
    await driver.write("/plimsoll-test-psi/stalls", "memory.high", str(8 * MIB))
    directories = {name: driver.mount.directory(f"/plimsoll-test-psi/{name}") for name in ("stalls", "calm")}
    async with CgroupWatcher[str]() as watcher:
        for name, directory in directories.items():
            note = watcher.pressure(name, "memory", "some", 50_000, 500_000, directory=directory)
            check("a short window is granted to root with every capability", note == "")
        check("each key comes once at the start", await watcher.__anext__() == {"stalls", "calm"})
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-S", "-c", STALLS], stdin=subprocess.DEVNULL
        )
        try:
            await driver.move("/plimsoll-test-psi/stalls", child.pid)
            async with asyncio.timeout(60):
                check("only the one that stalls fires", await watcher.__anext__() == {"stalls"})
            standings = live_tree(driver, "/plimsoll-test-psi")
            check("its share is read too", "memory" in standings["/plimsoll-test-psi/stalls"].pressure)
        finally:
            child.kill()
            child.wait()
        try:
            watcher.pressure("calm", "memory", "some", 600_000, 500_000, directory=directories["calm"])
        except CgroupError as error:
            check("a stall longer than its window is refused with the file's name", "memory.pressure" in str(error))
        else:
            check("a stall longer than its window is refused", False)
    for directory in directories.values():
        directory.close()
    for name in ("/plimsoll-test-psi/stalls", "/plimsoll-test-psi/calm", "/plimsoll-test-psi"):
        await driver.remove(name)
    print("all seen")


def check(what: str, true: bool) -> None:
    if not true:
        sys.exit(f"not so: {what}")
    print(what, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
