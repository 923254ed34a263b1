"""What is left on the host when the links of an attachment are gone: rules by their names (the record LINKS)."""

from weft.cni.attachment import masq
from weft.cni.plugins.bridge import spoofcheck
from weft.cni.sdk import record
from weft.cni.sdk.host import Host
from weft.model.attachment import Attachment
from weft.wire.cnijson import Object


def undo(host: Host, attachment: Attachment, known: Object) -> None:
    """Remove the rules that the record tells of; those of an earlier boot went with it."""
    links = record.parse(known)
    if links is None or known.get("boot") != host.boot_id:
        return
    if links.masq:
        masq.remove(attachment, links.masq, links.addresses)
    if links.spoof_check:
        spoofcheck.remove([attachment])
