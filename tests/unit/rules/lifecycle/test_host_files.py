"""hostname, /etc/hosts and /etc/resolv.conf of pods."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.rules.lifecycle.host_files import Dns, NodeNames, dns_of, hostname, hosts_text, pod_dns, resolv_text
from plimsoll.rules.model.runnable import RunPod

NODE = NodeNames("node-1", "127.0.0.1 localhost\n", Dns(("192.0.2.53",), ("example.org",), ("timeout:1",)))
CLUSTER = NodeNames("node-1", "", NODE.dns, ("10.0.0.10",))


def pod(name: str = "p", **spec: Any) -> RunPod:
    return run_pod({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})


@pytest.mark.parametrize(
    ("it", "expected"),
    [
        pytest.param(pod(), "p", id="the pod's name"),
        pytest.param(pod(hostname="h"), "h", id="its own"),
        pytest.param(pod(hostNetwork=True), "node-1", id="the host's"),
        pytest.param(pod(hostname="h", subdomain="s", hostnameOverride="o.example"), "o.example", id="another name"),
        pytest.param(pod("a" * 62 + ".b"), "a" * 62, id="cut without a dot at the end"),
        pytest.param(pod(subdomain="s"), "p", id="the domain is not in it"),
        pytest.param(pod(subdomain="s", setHostnameAsFQDN=True), "p.s.ns.svc.cluster.local", id="unless asked for"),
        pytest.param(pod("a" * 50, subdomain="s", setHostnameAsFQDN=True), "a" * 50, id="the kernel takes 64"),
    ],
)
def test_hostname(it: RunPod, expected: str) -> None:
    assert hostname(it, "node-1") == expected


def test_hosts() -> None:
    it = pod(subdomain="s", hostAliases=[{"ip": "1.2.3.4", "hostnames": ["foo", "bar"]}])
    assert hosts_text(it, NODE, ["10.0.0.7"]) == (
        "# Kubernetes-managed hosts file.\n"
        "127.0.0.1\tlocalhost\n"
        "::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\n"
        "fe00::1\tip6-allnodes\n"
        "fe00::2\tip6-allrouters\n"
        "10.0.0.7\tp.s.ns.svc.cluster.local\tp\n"
        "\n"
        "# Entries added by HostAliases.\n"
        "1.2.3.4\tfoo\tbar\n"
    )
    overridden = pod(hostname="h", subdomain="s", hostnameOverride="o.example")
    assert hosts_text(overridden, NODE, ["10.0.0.7"]).endswith("\n10.0.0.7\to.example\n"), "found by its whole name"
    assert hosts_text(pod(), NODE, []).endswith("127.0.0.1\tp\n"), "a pod with loopback only is found there"
    assert hosts_text(pod(hostNetwork=True), NODE, ["192.0.2.1"]) == (
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
    )


CLUSTER_SEARCHES = ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org")


@pytest.mark.parametrize(
    ("it", "node", "expected"),
    [
        pytest.param(pod(), NODE, NODE.dns, id="no cluster server: as the node"),
        pytest.param(pod(dnsPolicy="Default"), CLUSTER, NODE.dns, id="Default"),
        pytest.param(pod(), CLUSTER, Dns(("10.0.0.10",), CLUSTER_SEARCHES, ("ndots:5",)), id="ClusterFirst"),
        pytest.param(
            pod(dnsPolicy="ClusterFirst", hostNetwork=True), CLUSTER, NODE.dns, id="not on the host's network"
        ),
        pytest.param(
            pod(dnsPolicy="ClusterFirstWithHostNet", hostNetwork=True),
            CLUSTER,
            Dns(("10.0.0.10",), CLUSTER_SEARCHES, ("ndots:5",)),
            id="unless with it",
        ),
        pytest.param(
            pod(
                dnsPolicy="None",
                dnsConfig={"nameservers": ["1.1.1.1"], "searches": ["x"], "options": [{"name": "edns0"}]},
            ),
            CLUSTER,
            Dns(("1.1.1.1",), ("x",), ("edns0",)),
            id="None",
        ),
        pytest.param(
            pod(dnsConfig={"searches": ["x", "cluster.local"], "options": [{"name": "ndots", "value": "2"}]}),
            CLUSTER,
            Dns(("10.0.0.10",), (*CLUSTER_SEARCHES, "x"), ("ndots:2",)),
            id="added, each once, options replaced",
        ),
    ],
)
def test_dns(it: RunPod, node: NodeNames, expected: Dns) -> None:
    assert pod_dns(it, node) == expected


def test_resolv_conf_there_and_back() -> None:
    text = "search a.example b.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:2 edns0\n"
    assert resolv_text(dns_of(text)) == text
    assert dns_of("# c\n; c\n\nsearch old\nsearch new.\nnameserver\n") == Dns((), ("new",), ())
    assert resolv_text(Dns()) == ""
