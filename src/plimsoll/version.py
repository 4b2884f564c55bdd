"""The version that the API server and the nodes report."""

from __future__ import annotations

import plimsoll
from plimsoll.rules.profile import Profile


def git_version(profile: Profile) -> str:
    """The release of Kubernetes that the profile follows, with ours as build metadata: `v1.27.0+plimsoll.0.1.0`."""
    return f"v{profile.release}.0+plimsoll.{plimsoll.__version__}"
