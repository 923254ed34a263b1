"""The storage of images that podman and CRI-O share (containers/storage), on a machine of a test's own."""

import json
from pathlib import Path
from typing import Final

from tests.runtime.machine import Machine

_STORAGE: Final = """
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
"""
_POLICY: Final = {"default": [{"type": "insecureAcceptAnything"}]}


def load(machine: Machine, image: Path) -> None:
    """Set the storage up and put an image into it."""
    settings = machine.path("/etc/containers")
    (settings / "storage.conf").write_text(_STORAGE)
    (settings / "policy.json").write_text(json.dumps(_POLICY))
    machine.run("podman", "load", "--quiet", "--input", str(image))
