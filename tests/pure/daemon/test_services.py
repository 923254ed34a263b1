"""What the daemon offers beside the network waits for what it needs, and says so once."""

import asyncio
import errno
import os
from typing import Any

from weft.daemon import services


def test_a_state_that_cannot_be_opened_is_waited_for_and_each_reason_told_once(monkeypatch, caplog):
    monkeypatch.setattr(services, "_RETRY_SECONDS", 0)
    reasons = [errno.ENOSPC, errno.ENOSPC, errno.EACCES, errno.ENOSPC]
    node: Any = object()

    def open_state() -> Any:
        if reasons:
            number = reasons.pop(0)
            raise OSError(number, os.strerror(number))
        return node

    assert asyncio.run(services._opened(open_state, "/s/cni")) is node
    hint = "Plugins are not served until it can: without their locks two could do the same. Trying again"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"STATE-002 /s/cni: cannot be used: {words}. {hint}")
        for words in ("No space left on device", "Permission denied", "No space left on device")
    ]
