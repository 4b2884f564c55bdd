"""Whether a node with the static CPU policy has the CPUs that a resize asks for, as far as can be told from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.rules.node_admission import Refused
from plimsoll.rules.objects import Pod
from plimsoll.rules.setting import Setting


def cpu_refusal(setting: Setting, held: Sequence[Pod]) -> Callable[[Pod], Refused | None]:
    """`held`: the node's pods as allocated. Cores are counted as one thread each: nobody tells how they are laid out.

    Raises InvalidConfig where the node would not start with that policy.
    """
    if not setting.policy.static_cpus:
        return lambda _pod: None
    from plimsoll.node.cpu_manager import cpu_plan
    from plimsoll.rules.cpu_foretold import foretold_cpu_refusal
    from plimsoll.rules.cpu_topology import flat

    return foretold_cpu_refusal(cpu_plan(setting, flat(setting.machine.cores)), setting.policy, held)
