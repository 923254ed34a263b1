"""All troubles, by name."""

from typing import Final

from tests.campaign.brokenworld import Trouble
from tests.campaign.troubles import host, process, store, uplink

TROUBLES: Final[dict[str, Trouble]] = {
    **uplink.TROUBLES,
    **host.TROUBLES,
    **store.TROUBLES,
    **process.TROUBLES,
}
