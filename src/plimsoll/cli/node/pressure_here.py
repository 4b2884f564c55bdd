"""`plimsoll pressure --here`: the eviction signals of this machine, from the kernel and the kubelet's configuration.

It needs no API. Which pods the kubelet would evict depends on their priorities and requests, so that order is shown
only with a cluster.
"""

from __future__ import annotations

import os
import time

from plimsoll.audit.kubelet import ROOT_DIR, kubelet_facts
from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.codec.kernel.files import KernelTextError, pressure
from plimsoll.codec.node_pages import PressurePage, pressure_page
from plimsoll.linux.machine import text_or_empty, this_machine
from plimsoll.node.pressure.signals import Signals
from plimsoll.node.stats.stats import NodePlace
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.eviction.assessment import met_thresholds, node_conditions
from plimsoll.rules.explain.upgrade_node import readable
from plimsoll.rules.model.cgroup_names import cgroup_path, root_name
from plimsoll.rules.node.node_config import configured_thresholds
from plimsoll.rules.profile import RELEASES, profile_named

NEWEST = RELEASES[-1]


def page_here() -> tuple[PressurePage, list[str]]:
    """The signals with their thresholds, and notes about what is assumed."""
    notes = []
    profile = profile_named(NEWEST)
    facts, why = kubelet_facts()
    if facts is None:
        config = default_config(profile)
        notes.append(f"{why}: the kubelet's default thresholds are shown")
    else:
        config = readable(facts.document, profile, facts.flags)[0].config
    thresholds = configured_thresholds(config)
    driver = open_cgroupfs(this_host())
    nodefs = ROOT_DIR if os.path.isdir(ROOT_DIR) else "/var/lib"
    name = root_name(config.cgroup_root)
    known = [path for path in (cgroup_path(name, "systemd"), cgroup_path(name, "cgroupfs")) if driver.read(path, ())]
    pods_path = known[0] if known else cgroup_path(name, "cgroupfs")
    if not known:
        notes.append("there is no tree of pods on this machine (neither kubepods nor kubepods.slice)")
    images = next((path for path in ("/var/lib/containerd", "/var/lib/containers") if os.path.isdir(path)), nodefs)
    place = NodePlace(os.uname().nodename, pods_path, nodefs, images)
    signals = Signals(driver, place, capacity_bytes=this_machine().memory_bytes, clock=time.time)
    try:
        observations = {**signals.memory(), **signals.others()}
    finally:
        signals.close()
        driver.close()
    conditions = node_conditions(met_thresholds(thresholds, observations))
    return pressure_page(conditions, thresholds, observations, (), {}), notes


def stall_lines() -> list[str]:
    """PSI of the machine: the shares of time in which some, and all, tasks waited."""
    found = []
    for resource in ("memory", "cpu", "io"):
        try:
            text = text_or_empty(f"/proc/pressure/{resource}")
            stall = pressure(text) if text else None
        except (OSError, KernelTextError):
            stall = None
        if stall is None or stall.some is None:
            found.append(f"{resource}: no PSI (boot with psi=1)")
            continue
        full = f", all tasks {stall.full.avg60:.1f} %" if stall.full is not None else ""
        found.append(
            f"{resource}: some task waited {stall.some.avg10:.1f} % of 10 s, {stall.some.avg60:.1f} % of 60 s{full}"
        )
    return found
