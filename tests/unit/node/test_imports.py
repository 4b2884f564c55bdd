"""What the agent loads when it starts: packages that most nodes do not need take memory that their pods could have."""

from __future__ import annotations

import json
import subprocess
import sys

LATER = {
    "cryptography": "keys are made in another process",
    "plimsoll.net.grpc.client_connection": "with the first gRPC connection: a CRI runtime, a device plugin, a probe",
    "dbus_fast": "with systemd's cgroups, or graceful shutdown",
    "plimsoll.codec.cel": "the API server evaluates expressions",
    "plimsoll.web": "the API server has the dashboard",
}


def test_what_is_not_loaded_at_the_start() -> None:
    code = "import json, sys; import plimsoll.node.assembly; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = json.loads(done.stdout)
    assert [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in LATER)] == []
