"""Rules of validation that releases differ in, resolved once per server."""

from __future__ import annotations

import msgspec

from plimsoll.rules.profile import Profile


class SpecRules(msgspec.Struct, frozen=True):
    relaxed_environment: bool = True  # names of variables: any printable ASCII but "="
    relaxed_searches: bool = True  # DNS search domains: "." and underscores
    zero_sleep: bool = True  # a hook may sleep for 0 s
    environment_files: bool = True  # fileKeyRef
    selinux_mount_option: bool = True  # seLinuxChangePolicy MountOption


def spec_rules(profile: Profile) -> SpecRules:
    return SpecRules(
        relaxed_environment=profile.environment_names_relaxed,
        relaxed_searches=profile.dns_searches_relaxed,
        zero_sleep=profile.zero_sleep_allowed,
        environment_files=profile.environment_files,
        selinux_mount_option=profile.selinux_mount_option,
    )


DEFAULT_RULES = SpecRules()
