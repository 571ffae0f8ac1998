"""Runs `realm corpus build` as a process, and measures its CPU time."""

import json
import os
import subprocess
from typing import Any

from realm_jax.runtime import realm_command


def timed_build(**flags: object) -> dict[str, Any]:
    """The report of the command, with `cpu_seconds` of all its processes."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    before = os.times()
    done = subprocess.run(
        realm_command("corpus", "build", "--json", *given), stdout=subprocess.PIPE, check=True
    )
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return {**json.loads(done.stdout), "cpu_seconds": cpu}
