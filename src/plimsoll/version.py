"""The version that the API server and the nodes report."""

from __future__ import annotations

import plimsoll
from plimsoll.rules.profile import AS_RELEASED, OWN_BUILD, PROFILE_DOCUMENTS, Profile

DOCUMENTED_RELEASE = PROFILE_DOCUMENTS.release


def git_version(profile: Profile) -> str:
    """The release of Kubernetes that the profile follows, with ours as build metadata: `v1.27.0+plimsoll.0.1.0`.

    Two profiles follow 1.27: the one that behaves as released is `v1.27.0+plimsoll.0.1.0.release`.
    """
    as_released = AS_RELEASED if profile.name == DOCUMENTED_RELEASE else ""
    return f"v{profile.release}.0{OWN_BUILD}{plimsoll.__version__}{as_released}"
