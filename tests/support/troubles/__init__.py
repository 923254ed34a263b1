"""All troubles, by name."""

from typing import Final

from tests.support.brokenworld import Trouble
from tests.support.troubles import host, process, store, uplink

TROUBLES: Final[dict[str, Trouble]] = {
    **uplink.TROUBLES,
    **host.TROUBLES,
    **store.TROUBLES,
    **process.TROUBLES,
}
