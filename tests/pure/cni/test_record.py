"""The names under which an attachment is found again, also by a version that comes after the one that made it."""

from weft.cni.sdk.record import alias_of, key_of
from weft.model.attachment import Attachment

ATTACHMENT = Attachment(network="cbr0", container_id="c1", ifname="eth0")


def test_the_key_and_the_alias_stay_what_they_are():
    assert key_of(ATTACHMENT) == "dd6410424f7c47d8e090f69fcea63e91"
    assert alias_of(ATTACHMENT) == f"weft:pod:{key_of(ATTACHMENT)}"
