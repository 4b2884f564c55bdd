"""Services as environment variables: what a container finds of the services that exist when it starts.

`web` at 10.96.0.5 with port 80 becomes WEB_SERVICE_HOST=10.96.0.5, WEB_SERVICE_PORT=80, WEB_PORT=tcp://10.96.0.5:80 and
WEB_PORT_80_TCP… as container links had it. Only services with an address count. The service default/kubernetes is added
in every namespace, the others of the pod's namespace with `enableServiceLinks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from plimsoll.rules.model.objects import Lean

# On the service default/kubernetes of a cluster in which no proxy serves its address: containers get the address by
# which their node reaches the API server.
UNPROXIED = "plimsoll.dev/unproxied"


class LinkedPort(Lean, frozen=True):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class LinkedSpec(Lean, frozen=True, rename={"cluster_ip": "clusterIP"}):
    cluster_ip: str = ""
    ports: tuple[LinkedPort, ...] = ()


class LinkedMetadata(Lean, frozen=True):
    name: str = ""
    annotations: dict[str, str] | None = None


class LinkedService(Lean, frozen=True):
    metadata: LinkedMetadata = LinkedMetadata()
    spec: LinkedSpec = LinkedSpec()


def linked_server(server: str) -> LinkedService:
    """The API server as this node reaches it: no proxy of services is needed for it."""
    url = urlsplit(server)
    ports = (LinkedPort("https", "TCP", url.port or 443),)
    return LinkedService(LinkedMetadata("kubernetes"), LinkedSpec(url.hostname or "", ports))


def with_server(services: list[LinkedService], server: LinkedService) -> list[LinkedService]:
    """`server`, the API server, in place of a service `kubernetes` that is missing or that no proxy serves."""
    name = server.metadata.name
    found = next((each for each in services if each.metadata.name == name), None)
    if found is not None and (found.metadata.annotations or {}).get(UNPROXIED) != "true":
        return services
    return [server, *(each for each in services if each is not found)]


def service_variables(services: Iterable[LinkedService]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for service in services:
        if service.spec.cluster_ip not in ("", "None") and service.spec.ports:
            variables |= _of(service)
    return variables


def _of(service: LinkedService) -> dict[str, str]:
    name, address, ports = _upper(service.metadata.name), service.spec.cluster_ip, service.spec.ports
    host = f"[{address}]" if ":" in address else address
    found = {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(ports[0].port)}
    for port in ports:
        if port.name:
            found[f"{name}_SERVICE_PORT_{_upper(port.name)}"] = str(port.port)
    for index, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        url = f"{protocol.lower()}://{host}:{port.port}"
        if index == 0:
            found[f"{name}_PORT"] = url
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        found |= {
            prefix: url,
            f"{prefix}_PROTO": protocol.lower(),
            f"{prefix}_PORT": str(port.port),
            f"{prefix}_ADDR": address,
        }
    return found


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")
