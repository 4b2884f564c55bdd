"""A pod's hostname, /etc/hosts and /etc/resolv.conf, as the kubelet writes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.model.runnable import HostAlias, RunPod

_MAX_HOSTNAME = 63
_MAX_KERNEL_HOSTNAME = 64
_CLUSTER_OPTIONS = ("ndots:5",)
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_LOOPBACK = """\
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
"""


class Dns(msgspec.Struct, frozen=True):
    """The lines of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class NodeNames(msgspec.Struct, frozen=True):
    """The node's hostname, its files, and the cluster's name servers, if any."""

    hostname: str = ""
    hosts: str = ""  # text of its /etc/hosts
    dns: Dns = Dns()  # of its resolv.conf
    cluster_servers: tuple[str, ...] = ()  # clusterDNS
    cluster_domain: str = "cluster.local"


def hostname(pod: RunPod, node_hostname: str, cluster_domain: str = "cluster.local") -> str:
    """A pod in the host's network has the host's name."""
    if pod.spec.host_network:
        return node_hostname
    short = pod_hostname(pod)
    if pod.spec.set_hostname_as_fqdn and (domain := pod_domain(pod, cluster_domain)):
        full = f"{short}.{domain}"
        return full if len(full) <= _MAX_KERNEL_HOSTNAME else short
    return short


def pod_hostname(pod: RunPod) -> str:
    name = pod.spec.hostname_override or pod.spec.hostname or pod.metadata.name
    return name if len(name) <= _MAX_HOSTNAME else name[:_MAX_HOSTNAME].rstrip("-.")


def pod_domain(pod: RunPod, cluster_domain: str) -> str:
    """Empty for a pod without a subdomain, or with a hostname that replaces the whole name."""
    if not pod.spec.subdomain or pod.spec.hostname_override:
        return ""
    return f"{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}".rstrip(".")


def hosts_text(pod: RunPod, node: NodeNames, pod_ips: Iterable[str]) -> str:
    """A pod without an address of its own is listed with the loopback address."""
    aliases = _aliases_text(pod.spec.host_aliases)
    if pod.spec.host_network:
        return _HOST_NETWORK_HEADER + node.hosts + aliases
    short, domain = pod_hostname(pod), pod_domain(pod, node.cluster_domain)
    names = f"{short}.{domain}\t{short}" if domain else short
    own = "".join(f"{address}\t{names}\n" for address in (tuple(pod_ips) or ("127.0.0.1",)))
    return _HEADER + _LOOPBACK + own + aliases


def _aliases_text(aliases: tuple[HostAlias, ...]) -> str:
    if not aliases:
        return ""
    lines = "".join("\t".join((alias.ip, *alias.hostnames)) + "\n" for alias in aliases)
    return "\n# Entries added by HostAliases.\n" + lines


def dns_of(resolv_conf: str) -> Dns:
    """Of several `search` or `options` lines the last one counts, as in resolvers."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    for line in resolv_conf.splitlines():
        words = line.split()
        if not words or words[0].startswith(("#", ";")):
            continue
        if words[0] == "nameserver" and len(words) > 1:
            servers.append(words[1])
        elif words[0] == "search":
            searches = tuple(word if word == "." else word.rstrip(".") for word in words[1:])
        elif words[0] == "options":
            options = tuple(words[1:])
    return Dns(tuple(servers), searches, options)


def pod_dns(pod: RunPod, node: NodeNames) -> Dns:
    """By dnsPolicy; ClusterFirst without cluster name servers uses the node's."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "None":
        base = Dns()
    elif node.cluster_servers and (
        policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)
    ):
        domain = node.cluster_domain
        searches = (f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
        base = Dns(node.cluster_servers, _once((*searches, *node.dns.searches)), _CLUSTER_OPTIONS)
    else:
        base = node.dns
    extra = pod.spec.dns_config
    if extra is None:
        return base
    named = {option.name for option in extra.options}
    own = tuple(option.name if option.value is None else f"{option.name}:{option.value}" for option in extra.options)
    return Dns(
        _once((*base.servers, *extra.nameservers)),
        _once((*base.searches, *extra.searches)),
        (*(option for option in base.options if option.partition(":")[0] not in named), *own),
    )


def resolv_text(dns: Dns) -> str:
    lines = []
    if dns.searches:
        lines.append(f"search {' '.join(dns.searches)}")
    lines.extend(f"nameserver {server}" for server in dns.servers)
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}")
    return "".join(f"{line}\n" for line in lines)


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
