"""POST side by side: Plimsoll on SQLite and on etcd, its client library on bare etcd, and kube-apiserver on etcd.

All of them sync the same disk before they answer. One after the other is measured for a short time, again and again, and
the medians are compared, so that a noisy machine disturbs all alike. `KUBE_APISERVER` names kube-apiserver, which is not
part of the project; without it that comparison is left out. `python api_writes.py bare URL` is the client of bare etcd.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from plimsoll.kube.http import HttpTransport  # noqa: E402
from plimsoll.kube.kubeconfig import load  # noqa: E402
from plimsoll.kube.request import Request  # noqa: E402
from plimsoll.store.etcd.client import EtcdClient  # noqa: E402
from plimsoll.store.etcd.location import location  # noqa: E402
from plimsoll.store.etcd.messages import TXN, TxnResponse  # noqa: E402
from plimsoll.store.etcd.shapes import transaction  # noqa: E402
from tests.bench.api_client import CommandLine  # noqa: E402
from tests.e2e.api_process import ApiProcess  # noqa: E402
from tests.e2e.control_plane import ControlPlane  # noqa: E402
from tests.e2e.etcd_process import EtcdProcess, NoEtcdError, program  # noqa: E402

ROUNDS, SECONDS = 5, 1.5
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
STORED_BYTES = 2200  # of the benchmark's pods
BARE_GOAL, KUBE_GOAL = 0.8, 2.0
OWN = ", own specs"
Rate = Callable[[int], float]  # of a concurrency


async def bare(url: str) -> None:
    """Creates keys with the client library alone, as the store does; jobs are concurrencies, one per line."""
    client, value, numbers = EtcdClient(location(url)), b"x" * STORED_BYTES, itertools.count()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        concurrency, count, began = int(line), 0, time.perf_counter()

        async def one(end: float) -> None:
            nonlocal count
            while time.perf_counter() < end:
                request = transaction(f"/bare/{next(numbers)}".encode(), 0, value, None)
                answer = await client.write_once(TXN, request, TxnResponse)
                assert answer.succeeded
                count += 1

        await asyncio.gather(*(one(began + SECONDS) for _ in range(concurrency)))
        print(count / (time.perf_counter() - began), flush=True)
    client.close()


def _bare_rate(stack: ExitStack, url: str) -> Rate:
    command = [sys.executable, str(HERE / "api_writes.py"), "bare", url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(process.communicate)

    def rate(concurrency: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{concurrency}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return rate


def _server_rates(stack: ExitStack, name: str, url: str, kubeconfig: Path) -> Iterator[tuple[str, Rate]]:
    """Of pods that differ in their names only, as those of a ReplicaSet do, and of pods with a specification each."""
    client = CommandLine(url, kubeconfig)
    stack.callback(client.close)

    def rate(requests: str, concurrency: int) -> float:
        found: float = client(do="load", requests=requests, concurrency=concurrency, seconds=SECONDS, pods=1)["per_s"]
        return found

    yield name, partial(rate, "post")
    yield f"{name}{OWN}", partial(rate, "post own")


def _contenders(stack: ExitStack, directory: Path) -> Iterator[tuple[str, Rate]]:
    server = ApiProcess(directory / "sqlite", directory / "sqlite.log", "--no-scheduler").ready()
    stack.callback(server.stop)
    yield from _server_rates(stack, "sqlite", server.url, server.kubeconfig)
    try:
        etcd = EtcdProcess(directory).start()
    except NoEtcdError as error:
        print(f"nothing on etcd is measured: {error}")
        return
    stack.callback(etcd.kill)
    yield "bare etcd", _bare_rate(stack, etcd.url)
    key = directory / "store.key"
    key.write_text("of the benchmark")
    options = ("--no-scheduler", "--store", etcd.url, "--store-key-file", str(key))
    shared = ApiProcess(directory / "etcd", directory / "etcd.log", *options).ready()
    stack.callback(shared.stop)
    yield from _server_rates(stack, "etcd", shared.url, shared.kubeconfig)
    kube = os.environ.get("KUBE_APISERVER")
    if not kube:
        print("kube-apiserver is not measured: KUBE_APISERVER does not name it")
        return
    (directory / "kube").mkdir()
    plane = ControlPlane(directory / "kube", program(), Path(kube).parent)
    stack.callback(plane.close)
    plane.start_servers()
    asyncio.run(_create_account(plane.kubeconfig))
    yield from _server_rates(stack, "kube-apiserver", plane.url, plane.kubeconfig)


async def _create_account(kubeconfig: Path) -> None:
    """The account of pods, which kube-controller-manager would create."""
    transport = HttpTransport(load(kubeconfig))
    body = json.dumps({"metadata": {"name": "default"}}).encode()
    answer = await transport.send(Request("POST", ACCOUNTS, body, "application/json"))
    assert answer.status == 201, answer
    await transport.close()


def measure() -> None:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name, ExitStack() as stack:
        rates = dict(_contenders(stack, Path(name)))
        jobs = [(each, concurrency) for concurrency in (4, 64) for each in rates]
        found: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
        for number in range(ROUNDS + 1):  # the first one warms up
            for each, concurrency in jobs:
                rate = rates[each](concurrency)
                if number:
                    found[each, concurrency].append(rate)
    medians = {job: statistics.median(some) for job, some in found.items()}
    for (each, concurrency), median in medians.items():
        some = found[each, concurrency]
        print(f"POST {each:25}{concurrency:4} {median:8.0f} per s   ({min(some):.0f} to {max(some):.0f})")
    for one, other, concurrency, goal in (
        ("etcd", "bare etcd", 4, BARE_GOAL),
        ("etcd", "bare etcd", 64, BARE_GOAL),
        ("sqlite", "kube-apiserver", 4, KUBE_GOAL),
        (f"sqlite{OWN}", f"kube-apiserver{OWN}", 4, KUBE_GOAL),
        ("sqlite", "kube-apiserver", 64, None),
        (f"sqlite{OWN}", f"kube-apiserver{OWN}", 64, None),
        ("etcd", "kube-apiserver", 4, None),
        ("etcd", "kube-apiserver", 64, None),
    ):
        if other in rates:
            ratio = medians[one, concurrency] / medians[other, concurrency]
            shown = "" if goal is None else f" ≥ {goal:g}: {'ok' if ratio >= goal else 'MISSED'}"
            print(f"{one} / {other} at {concurrency}: {ratio:.2f}{shown}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        asyncio.run(bare(sys.argv[2]))
    else:
        print(json.dumps({"load": os.getloadavg()[0]}))
        measure()
