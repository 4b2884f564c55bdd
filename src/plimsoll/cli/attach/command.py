"""`plimsoll attach` in its two forms (a pod's process, or this node), and `plimsoll detach`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll.cli import console
from plimsoll.cli.client import PodName, cluster_options
from plimsoll.rules.profile import RELEASES

if TYPE_CHECKING:
    from plimsoll.attach.service import Mode

MODES = ("observe", "canary", "enforce")
NODE_FORM = "of the node form"


@console.command("attach")
@console.argument("pod", type=PodName(), metavar="[POD]", default=None)
@console.option("-c", "--container", default="", help="With POD: the container. [default: the only one]")
@console.option("-i", "--stdin", "with_input", is_flag=True, help="With POD: pass standard input to the container.")
@console.option(
    "-t", "--tty", is_flag=True, help="With POD: the container has a terminal; needs -i and a local terminal."
)
@console.option("--mode", type=console.Choice(MODES), help="Attach to this node: observe, canary or enforce.")
@console.option("--status", is_flag=True, help="Show what the attach that runs on this node does.")
@console.option("--policy", metavar="FILE", help="The policy: switches, namespaces, ceilings. [default: all off]")
@console.option(
    "--canary", "canaries", multiple=True, metavar="NAMESPACE", help="In canary: this namespace; repeat it."
)
@console.option(
    "--canary-label", default="", metavar="KEY=VALUE", help="In canary: namespaces with this label, by the API."
)
@console.option("--once", is_flag=True, help="With observe: print what would be written, and end.")
@console.option("--pods", "pods_path", metavar="PATH", help="Read the pods from manifests, not from the API server.")
@console.option("--pods-socket", metavar="PATH", help="Ask the kubelet's PodsAPI (1.37) for pods, not the API server.")
@console.option(
    "--node-name", default="", metavar="NAME", help="The Node of this machine. [default: $NODE_NAME, or by its boot id]"
)
@console.option("--nri-socket", default="", metavar="PATH", help="[default: /var/run/nri/nri.sock]")
@console.option(
    "--nri-index",
    default="95",
    metavar="NN",
    help="The order among NRI plugins, two digits: a late plugin sees what the others set.",
)
@console.option("--state-dir", metavar="DIR", help="The journal and the lock. [default: /run/plimsoll/attach]")
@console.option("--serve", metavar="HOST:PORT", help="Serve metrics at /metrics.")
@console.option(
    "--config", "config_file", metavar="FILE", help="The kubelet's configuration. [default: as it runs here]"
)
@console.option("--profile", type=console.Choice(RELEASES), help="The kubelet's release. [default: that of the Node]")
@console.option("-o", "--output", type=console.Choice(["table", "json"]), default="table")
@cluster_options
def attach(pod: str | None, mode: Mode | None, status: bool, **options: Any) -> int:
    """Attach to the process of a container (POD), or attach Plimsoll to this node (--mode).

    With POD, as kubectl attach: the output of the container's process from now on and, with -i, its input.

    With --mode, it runs beside the kubelet of this node, as a plugin of the container runtime (NRI), and gives
    containers, pods, QoS classes and kubepods the values of a policy: effective Memory QoS, memory.oom.group, a
    watchdog for containers that memory.high throttles, proactive reclaim, CPU burst, weights and limits of block I/O,
    repair of stale oom_score_adj.

    \b
      observe   changes nothing; reports what it would change
      canary    changes the pods of chosen namespaces only
      enforce   changes the pods of all namespaces

    Every write is journalled with the value before. `plimsoll detach` restores them all.

    \b
    Examples:
      plimsoll attach web
      plimsoll attach -it shell
      plimsoll attach --mode observe --policy policy.yaml --once
      plimsoll attach --mode canary --canary shop --policy policy.yaml
      plimsoll attach --mode enforce --policy policy.yaml --serve 127.0.0.1:9756
      plimsoll attach --status -o json
    """
    if pod is not None:
        if mode is not None or status:
            raise console.UsageError("POD and --mode are two forms: name a pod, or attach to this node")
        from plimsoll.cli.objects.exec import attached_to

        return attached_to(pod, **{name: options[name] for name in _POD_OPTIONS})
    if status:
        from plimsoll.cli.attach.output import shown_status

        return shown_status(options["state_dir"], options["output"])
    if mode is None:
        raise console.UsageError(
            "name a pod (plimsoll attach POD), or attach to this node (plimsoll attach --mode observe --once)"
        )
    _check(mode, options)
    from plimsoll.cli.attach.running import run_once, run_service

    return run_once(options) if options["once"] else run_service(mode, options)


_POD_OPTIONS = ("container", "with_input", "tty", "kubeconfig", "context", "namespace")


def _check(mode: Mode, options: dict[str, Any]) -> None:
    if options["container"] or options["with_input"] or options["tty"]:
        raise console.UsageError("-c, -i and -t are about a pod: they need POD")
    if options["once"] and mode != "observe":
        raise console.UsageError("--once only shows what would be done: use it with --mode observe")
    chosen = bool(options["canaries"] or options["canary_label"])
    if mode == "canary" and not chosen:
        raise console.UsageError("--mode canary needs --canary NAMESPACE or --canary-label KEY=VALUE")
    if mode != "canary" and chosen:
        raise console.UsageError("--canary and --canary-label need --mode canary")
    if options["pods_path"] and options["pods_socket"]:
        raise console.UsageError("--pods and --pods-socket are two sources of pods: give one")
    if options["canary_label"]:
        key, equals, value = options["canary_label"].partition("=")
        if not key or not equals or not value:
            raise console.UsageError(f"--canary-label {options['canary_label']}: expected KEY=VALUE")
        if options["pods_path"] or options["pods_socket"]:
            raise console.UsageError("--canary-label needs the API server: use --canary NAMESPACE with this source")
    if not (len(options["nri_index"]) == 2 and options["nri_index"].isdigit()):
        raise console.UsageError(f"--nri-index {options['nri_index']}: expected two digits, such as 95")


@console.command("detach")
@console.option("--state-dir", metavar="DIR", help="The journal of attach. [default: /run/plimsoll/attach]")
@console.option("--nri-socket", default="", metavar="PATH", help="[default: /var/run/nri/nri.sock]")
@console.option("--dry-run", is_flag=True, help="Only show what would be restored.")
@console.option("-o", "--output", type=console.Choice(["table", "json"]), default="table")
def detach(**options: Any) -> int:
    """Restore every value that `plimsoll attach` has changed on this node.

    Reads the journal of attach. A value that another program has changed since is left as it is, and listed. The
    container runtime is asked to forget the values too, so that it does not write them again at the next resize.

    Exit code 0: everything is as before, 1: a value could not be restored.

    \b
    Examples:
      plimsoll detach --dry-run
      plimsoll detach
    """
    from plimsoll.cli.attach.running import run_detach

    return run_detach(options)
