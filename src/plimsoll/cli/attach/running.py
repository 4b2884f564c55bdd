"""Puts attach together on this machine, and runs it: the service, one observation, or the restore."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.attach.detach import restored
from plimsoll.attach.guard import BurstGuard
from plimsoll.attach.journal import AttachJournal
from plimsoll.attach.pods import PodBook, follow_api, follow_files, follow_socket
from plimsoll.attach.policy_file import PolicyFile
from plimsoll.attach.service import AttachService, Mode, Scope
from plimsoll.attach.writer import AttachWriter, Restored
from plimsoll.audit.attached import STATE_DIR, boot_id
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.cgroups.drivers.systemd import SystemdCgroups
from plimsoll.cli import console
from plimsoll.cli.attach.output import restored_lines, status_lines
from plimsoll.cli.audit.sources import kubelet_kubeconfig, node_record
from plimsoll.cli.client import found_access
from plimsoll.cli.daemon import host_and_port, stop_event
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import PlimsollError
from plimsoll.kube.client import Client
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.request import NODES, ApiError, UnreachableError, get, listing
from plimsoll.linux.machine import this_machine
from plimsoll.logs import log_to_stderr
from plimsoll.rules.audit.evidence import KubeletFacts, NodeEvidence
from plimsoll.rules.audit.view import NodeView
from plimsoll.rules.model.objects import Node
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import OWN_BUILD
from plimsoll.runtime.nri.plugin import SOCKET, NriSession

NAME = "plimsoll"
ONCE_S = 10.0

log = logging.getLogger(__name__)


class _Source(msgspec.Struct):
    """Where pods and the Node come from; `transport` is None without the API."""

    name: str
    node: Node | None = None
    kubelet: KubeletFacts | None = None
    transport: HttpTransport | None = None


def run_service(mode: Mode, options: Mapping[str, Any]) -> int:
    log_to_stderr()
    try:
        return asyncio.run(_serve(mode, options))
    except ExceptionGroup as group:
        errors = group.subgroup(PlimsollError)
        if errors is None or group.split(PlimsollError)[1] is not None:
            raise
        raise next(_leaves(errors)) from None


def _leaves(group: BaseExceptionGroup[Any]) -> Any:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


async def _serve(mode: Mode, options: Mapping[str, Any]) -> int:
    service, source = await _assembled(mode, options)
    session = NriSession(Path(options["nri_socket"] or SOCKET), NAME, options["nri_index"], service.plugin)
    service.writer.session = session
    stop = stop_event()
    tasks = [
        service.run(),
        session.run(lambda problem: log.warning("NRI: %s; trying again", problem)),
        _follow(source, service.book, options),
    ]
    if options["serve"]:
        from plimsoll.attach.metrics_server import serve_metrics

        host, port = host_and_port(options["serve"], "--serve")
        tasks.append(serve_metrics(host, port, service.meters.registry.text))
    log.info("attached to node %s in mode %s; the journal is in %s", source.name, mode, service.journal.directory)
    try:
        await service.begin()
        async with asyncio.TaskGroup() as group:
            first, *others = [group.create_task(each) for each in tasks]
            await stop.wait()
            await cancel_all([first])  # it would write again what is restored now; the runtime stays connected
            await service.end()
            await cancel_all(others)
    finally:
        service.journal.close()
        if isinstance(service.writer.driver, SystemdCgroups):
            await service.writer.driver.close()
        if source.transport is not None:
            await source.transport.close()
    return 0


def run_once(options: Mapping[str, Any]) -> int:
    """What would be written now."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as directory:  # beside an attach that may run here
        return asyncio.run(_once({**options, "state_dir": directory}))


async def _once(options: Mapping[str, Any]) -> int:
    service, source = await _assembled("observe", options)
    following = asyncio.create_task(_follow(source, service.book, options))
    try:
        async with asyncio.timeout(ONCE_S):
            await service.book.listed.wait()
    except TimeoutError:
        raise PlimsollError(f"the pods of this node cannot be read: {service.book.problem}") from None
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        service.journal.close()
        if source.transport is not None:
            await source.transport.close()
    await service.round()
    status = service.status()
    if options["output"] == "json":
        console.echo(msgspec.json.encode(status).decode())
    else:
        for line in status_lines(status):
            console.echo(line)
    return 0


async def _assembled(mode: Mode, options: Mapping[str, Any]) -> tuple[AttachService, _Source]:
    policy = PolicyFile(Path(options["policy"]) if options["policy"] else None)
    policy.load()
    source = await _source(options)
    setting = _setting(source, options)
    journal = AttachJournal(Path(options["state_dir"] or STATE_DIR))
    journal.open(boot_id())
    label = tuple(options["canary_label"].partition("=")[::2]) if options["canary_label"] else None
    scope = Scope(mode, frozenset(options["canaries"]), label)
    driver = open_driver(setting.driver)
    writer = AttachWriter(driver, journal, setting.policy.page_size)
    guard = BurstGuard(journal.directory)
    service = AttachService(source.name, setting, scope, policy.current, PodBook(), journal, writer, guard)
    return service, source


def open_driver(name: str) -> CgroupDriver:
    files = open_cgroupfs(this_host())
    return SystemdCgroups(files) if name == "systemd" else files


async def _source(options: Mapping[str, Any]) -> _Source:
    named = options["node_name"] or os.environ.get("NODE_NAME", "")
    name = named or os.uname().nodename.lower()
    if options["pods_path"] or options["pods_socket"]:
        return _Source(name)
    path = options["kubeconfig"] or kubelet_kubeconfig()
    transport = HttpTransport(found_access(path, options["context"], dict(os.environ), os.geteuid()), agent=NAME)
    client = Client(transport)
    try:
        document = await _node_document(client, named)
        name = str(document["metadata"]["name"])
        config = await _config(client, name)
    except (ApiError, UnreachableError) as error:
        await transport.close()
        raise PlimsollError(
            f"the Node cannot be read: {error}; give --kubeconfig, --pods-socket (kubelet 1.37) or --pods"
        ) from None
    kubelet = KubeletFacts(config, "/configz", True) if config else None
    return _Source(name, from_document(document, Node), kubelet, transport)


async def _node_document(client: Client, name: str) -> dict[str, Any]:
    from plimsoll.cli.audit.sources import is_here

    if name:
        return await client.ask(get(NODES, name))
    here = [node for node in (await client.ask(listing(NODES))).get("items") or [] if is_here(node)]
    if len(here) != 1:
        raise PlimsollError("this machine is not a node of the cluster, or its Node is not known: give --node-name")
    return dict(here[0])


async def _config(client: Client, name: str) -> dict[str, Any]:
    """The kubelet's configuration by its /configz; empty if that may not be read."""
    from plimsoll.kube.request import Request

    try:
        page = await client.ask(Request("GET", f"/api/v1/nodes/{name}/proxy/configz"))
    except ApiError:
        return {}
    config = page.get("kubeletconfig")
    return config if isinstance(config, dict) else {}


def _setting(source: _Source, options: Mapping[str, Any]) -> NodeConfig:
    record = node_record(source.kubelet, {**options, "oci_runtime": "", "no_processes": True})
    view = NodeView(NodeEvidence(source.name, record, source.node))
    setting = view.setting
    if record.kernel is None:
        raise PlimsollError(f"the cgroups of this machine cannot be read: {record.unread.get('cgroups', view.problem)}")
    if setting is None:
        raise PlimsollError(f"the values of this node cannot be computed: {view.problem}")
    if record.kubelet is None:
        reason = record.unread.get("configuration", "")
        raise PlimsollError(f"the kubelet's configuration is not known: {reason}; give --config FILE")
    if not setting.config.cgroups_per_qos:
        raise PlimsollError("this kubelet has cgroupsPerQOS: false: there are no cgroups of pods to attach to")
    version = source.node.status.node_info.kubelet_version if source.node is not None else ""
    if OWN_BUILD in version:
        raise PlimsollError(
            "Plimsoll itself runs this node: set these switches in its own configuration (docs/node.md)"
        )
    return setting


async def _follow(source: _Source, book: PodBook, options: Mapping[str, Any]) -> None:
    if options["pods_path"]:
        await follow_files(Path(options["pods_path"]), book)
    elif options["pods_socket"]:
        await follow_socket(options["pods_socket"], book)
    else:
        assert source.transport is not None
        await follow_api(Client(source.transport), source.name, book, namespaces=bool(options["canary_label"]))


# Detach


def run_detach(options: Mapping[str, Any]) -> int:
    done, problem = asyncio.run(_detach(options))
    if options["output"] == "json":
        console.echo(msgspec.json.encode(done).decode())
    else:
        for line in restored_lines(done, dry_run=options["dry_run"]):
            console.echo(line)
    if problem:
        console.echo(f"note: {problem}", err=True)
    return int(any(each.outcome == "failed" for each in done))


async def _detach(options: Mapping[str, Any]) -> tuple[list[Restored], str]:
    journal = AttachJournal(Path(options["state_dir"] or STATE_DIR))
    if not journal.directory.exists():
        return [], f"{journal.directory} does not exist: attach has not run since this machine was started"
    journal.open(boot_id())
    driver = open_driver("systemd" if any(".slice" in each.path for each in journal.entries.values()) else "cgroupfs")
    socket = Path(options["nri_socket"] or SOCKET)
    try:
        return await restored(journal, driver, this_machine().page_size, socket, dry_run=options["dry_run"])
    finally:
        journal.close()
        if isinstance(driver, SystemdCgroups):
            await driver.close()
