"""What tuning keeps of a link that it changes: upstream's file, so that either can put back what the other changed."""

import json

from weft.cni.plugins.tuning.conf import LinkTuning
from weft.model.value import replace
from weft.wire import cnijson
from weft.wire.cnivalue import decode, encode


def render(before: LinkTuning) -> bytes:
    """Return what upstream's backup file holds for these settings."""
    return json.dumps(encode(before), indent=1).encode()


def parse(data: bytes) -> LinkTuning:
    """Read a backup file, ours or upstream's. Raises `JsonError`."""
    known = decode(LinkTuning, cnijson.load(data))
    # All zero means "not set" and can never be written back.
    return replace(known, mac=known.mac if any(known.mac or ()) else None, mtu=known.mtu or None)
