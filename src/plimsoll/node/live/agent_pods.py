"""The agent's pods, its events and its pressure as the live pages show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.cgroups.stats.usage import Pressures
from plimsoll.node.agent import Agent
from plimsoll.node.live.source import LiveSource
from plimsoll.node.machine import LiveNode
from plimsoll.node.pressure.manager import PressureManager
from plimsoll.node.stats.stats import Stats
from plimsoll.rules.model.objects import Pod


class AgentPods:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def pods(self) -> list[Pod]:
        return self._agent.pods.allocated()

    def containers(self) -> Mapping[str, Mapping[str, str]]:
        return {
            uid: {each.name: each.id for each in reversed(observed.containers) if each.phase == "running"}
            for uid, observed in self._agent.view.last.items()
        }

    def started_s(self, container_id: str) -> float:
        found = (each for pod in self._agent.view.last.values() for each in pod.containers if each.id == container_id)
        return next((each.started_s for each in found), 0.0)

    def paths(self, uid: str) -> Mapping[str, str]:
        return self._agent.cgroups.paths(uid) if self._agent.cgroups.enforced else {}


def live_source(
    live: LiveNode, agent: Agent, pressure: PressureManager, pressures: Callable[[], Pressures | None], stats: Stats
) -> LiveSource:
    source = LiveSource(live.setting, live.files, AgentPods(agent), pressure, pressures, stats.sample)
    agent.recorder.listeners.append(source.happened)
    agent.pods.listeners.append(source.pod_seen)
    agent.reporter.conflicts.append(source.status_refused)
    return source
