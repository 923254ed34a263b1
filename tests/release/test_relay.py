"""arm64's relay of back end udp, under qemu-user, passes the relay's own tests of what is on the wire."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.test_relay import TestOnTheWire
from tests.support.netns import Netns
from tests.support.relay.relaysite import Site
from weft.forward import build
from weft.model.value import replace

__all__ = ["TestOnTheWire"]


@pytest.fixture
def way(make_netns: Callable[[], Netns], programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    wrapper = tmp_path / "weft-relay"
    wrapper.write_text(f'#!/bin/sh\nexec qemu-aarch64 {programs}/forward/bin/weft-relay "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(build, "PROGRAM", replace(build.PROGRAM, path=wrapper))
    return Site(make_netns(), make_netns())
