"""Validation of a pod's names: host name, DNS, aliases, service account."""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.errors import FieldError
from plimsoll.rules.admission.addresses import is_ip
from plimsoll.rules.admission.pod_spec.field_errors import forbidden, invalid, misnamed, one_of, required, too_long
from plimsoll.rules.admission.pod_spec.rules import SpecRules
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.names import MAX_SUBDOMAIN_BYTES, dns_label_problems, dns_subdomain_problems

ADDRESS_RULE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MOST_SERVERS, _MOST_SEARCHES, _MOST_SEARCH_LETTERS = 3, 32, 2048
_MAX_HOSTNAME = 64
_PART = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = rf"{_PART}(\.{_PART})*"
_SEARCH_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SEARCH}')"
)


def dns_errors(spec: JsonObject, at: str, rules: SpecRules) -> Iterator[FieldError]:
    policy, config, path = spec.get("dnsPolicy"), spec.get("dnsConfig"), f"{at}.dnsConfig"
    yield from one_of(f"{at}.dnsPolicy", policy, _POLICIES)
    if policy == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            words = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{path}.nameservers", words)
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > _MOST_SERVERS:
        yield invalid(f"{path}.nameservers", servers, f"must not have more than {_MOST_SERVERS} nameservers")
    for index, server in enumerate(servers):
        yield from _address_errors(f"{path}.nameservers[{index}]", server)
    if len(searches) > _MOST_SEARCHES:
        yield invalid(f"{path}.searches", searches, f"must not have more than {_MOST_SEARCHES} search paths")
    if len(" ".join(searches)) > _MOST_SEARCH_LETTERS:
        words = f"must not have more than {_MOST_SEARCH_LETTERS} characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, words)
    for index, search in enumerate(searches):
        name = search.removesuffix(".")
        if not rules.relaxed_searches:
            yield from misnamed(f"{path}.searches[{index}]", name, dns_subdomain_problems(name))
        elif search != ".":
            yield from misnamed(f"{path}.searches[{index}]", name, _search_problems(name))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{index}]", "must not be empty")


def _search_problems(name: str) -> Iterator[str]:
    if len(name) > MAX_SUBDOMAIN_BYTES:
        yield f"must be no more than {MAX_SUBDOMAIN_BYTES} characters"
    if not re.fullmatch(_SEARCH, name):
        yield _SEARCH_RULE


def _address_errors(path: str, address: str) -> Iterator[FieldError]:
    if not is_ip(address):
        yield invalid(path, address, ADDRESS_RULE)


def host_name_errors(spec: JsonObject, at: str) -> Iterator[FieldError]:
    if (exact := spec.get("hostnameOverride")) is not None:
        path = f"{at}.hostnameOverride"
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                yield forbidden(path, f"may not be specified when {field} is true")
        if len(exact) > _MAX_HOSTNAME:
            yield too_long(path, _MAX_HOSTNAME)
        yield from misnamed(path, exact, dns_subdomain_problems(exact))
    if account := spec.get("serviceAccountName") or "":
        yield from misnamed(f"{at}.serviceAccountName", account, dns_subdomain_problems(account))
    for field in ("hostname", "subdomain"):
        if name := spec.get(field) or "":
            yield from misnamed(f"{at}.{field}", name, dns_label_problems(name))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        path = f"{at}.hostAliases[{index}]"
        yield from _address_errors(f"{path}.ip", alias.get("ip") or "")
        for number, name in enumerate(alias.get("hostnames") or ()):
            yield from misnamed(f"{path}.hostnames[{number}]", name, dns_subdomain_problems(name))
