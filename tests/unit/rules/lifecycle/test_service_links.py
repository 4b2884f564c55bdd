"""Services as environment variables, as a kubelet writes them."""

from __future__ import annotations

from plimsoll.rules.lifecycle.service_links import (
    LinkedMetadata,
    LinkedPort,
    LinkedService,
    LinkedSpec,
    service_variables,
)


def service(name: str, address: str, *ports: LinkedPort) -> LinkedService:
    return LinkedService(LinkedMetadata(name), LinkedSpec(address, ports))


def test_every_variable_of_a_service() -> None:
    found = service_variables(
        [service("my-web", "10.96.0.5", LinkedPort("http", "TCP", 80), LinkedPort("d", "UDP", 53))]
    )
    assert found == {
        "MY_WEB_SERVICE_HOST": "10.96.0.5",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_SERVICE_PORT_D": "53",
        "MY_WEB_PORT": "tcp://10.96.0.5:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.96.0.5:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.96.0.5",
        "MY_WEB_PORT_53_UDP": "udp://10.96.0.5:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.96.0.5",
    }


def test_a_service_without_an_address_has_none() -> None:
    assert service_variables([service("a", "None", LinkedPort("", "TCP", 1)), service("b", "")]) == {}


def test_an_address_of_version_6_is_in_brackets() -> None:
    found = service_variables([service("a", "fd00::1", LinkedPort("", "TCP", 80))])
    assert (found["A_SERVICE_HOST"], found["A_PORT"]) == ("fd00::1", "tcp://[fd00::1]:80")
