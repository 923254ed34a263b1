"""What tuning keeps of a link that it changes: upstream's file, so that either can put back what the other changed."""

import json
from collections.abc import Mapping
from typing import Any

from weft.cni.plugins.tuning.conf import LinkTuning
from weft.model.net import Mac
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object


def render(before: LinkTuning) -> bytes:
    """Return what upstream's backup file holds for these settings."""
    mac = None if before.mac is None else str(before.mac)
    known: Mapping[str, Any] = {
        "mac": mac,
        "promisc": before.promisc,
        "mtu": before.mtu,
        "allmulti": before.allmulti,
        "txQLen": before.queue_length,
    }
    return json.dumps({key: value for key, value in known.items() if value is not None}, indent=1).encode()


def parse(data: bytes) -> LinkTuning:
    """Read a backup file, ours or upstream's. Raises `JsonError`."""
    known = cnijson.load(data)
    try:
        mac = Mac.parse(cnijson.text(known, "mac")) if cnijson.text(known, "mac") else None
    except ValueError as error:
        raise JsonError(str(error)) from error
    return LinkTuning(
        # All zero means "not set" and can never be written back.
        mac=mac if mac is not None and any(mac) else None,
        promisc=_maybe_flag(known, "promisc"),
        mtu=cnijson.maybe_integer(known, "mtu") or None,
        allmulti=_maybe_flag(known, "allmulti"),
        queue_length=cnijson.maybe_integer(known, "txQLen"),
    )


def _maybe_flag(known: Object, key: str) -> bool | None:
    return None if cnijson.value_of(known, key) is None else cnijson.flag(known, key)
