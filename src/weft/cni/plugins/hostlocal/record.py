"""What host-local keeps beside its reservations: which addresses it gave to an attachment, and where (settled.md §9).

Written before a reservation is made, so that no address is without its record. It never names an address that the
reservation itself does not give to the attachment: the file decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.plugins.hostlocal import store
from weft.cni.sdk import record
from weft.cni.sdk.host import Host
from weft.cni.sdk.startup import Call
from weft.model.attachment import Attachment
from weft.model.net import Ip
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object

# The reservation follows the record at once; a busy machine may take a breath in between.
_AT_ONCE_NS: Final = 60 * 10**9


class Giving:
    """The addresses that an ADD gives, beside those that the attachment has already."""

    def __init__(self, call: Call, data_dir: str, before: Object | None) -> None:
        self._call = call
        self._data_dir = data_dir
        self._given = [] if before is None else [str(ip) for ip in addresses(before)]

    def about_to(self, ip: Ip) -> None:
        """Write down that this address may be the attachment's from now on."""
        known = {"dataDir": self._data_dir, "addresses": [*self._given, str(ip)]}
        record.keep(self._call, record.ADDRESSES, known)

    def done(self, ip: Ip) -> None:
        """Count an address that has been reserved; one that was not is dropped with the next one."""
        self._given.append(str(ip))


@contextmanager
def giving(call: Call, data_dir: str) -> Iterator[Giving]:
    """Keep the record up to date while addresses are given; as it was if that fails."""
    before = record.recall(call.host, record.ADDRESSES, call.attachment)
    try:
        yield Giving(call, data_dir, before)
    except BaseException:
        record.put_back(call, record.ADDRESSES, before)
        raise


def undo(host: Host, attachment: Attachment, known: Object) -> None:
    """Free what the record names and the attachment still has. `FileNotFoundError` if the store cannot be seen."""
    owner = store.owner_of(attachment.container_id, attachment.ifname)
    with store.opened(host.files, directory(attachment, known), host.stores) as reservations:
        for ip in addresses(known):
            reservations.release_from(ip, owner)


def given_to_valid(call: Call) -> dict[Ip, bytes]:
    """Return, in GC, the addresses of valid attachments, and what their files should hold."""
    directory = ipamconf.data_dir(call.config)
    return {
        ip: store.owner_of(attachment.container_id, attachment.ifname)
        for attachment, known in record.everything(call.host, record.ADDRESSES)
        if attachment.network == call.network and call.is_valid(attachment) and known.get("dataDir") == directory
        for ip in addresses(known)
    }


def is_anothers(host: Host, attachment: Attachment, known: Object) -> bool:
    """Tell whether the attachment has an address that we did not give: another plugin has taken it over since.

    It may have got the same one again, but not at the time when we wrote ours down.
    """
    given, latest = addresses(known), record.written(host, record.ADDRESSES, attachment) + _AT_ONCE_NS
    with store.opened(host.files, directory(attachment, known), host.stores) as reservations:
        has = reservations.confirmed(attachment.container_id, attachment.ifname)
        return any(ip not in given or reservations.made(ip) > latest for ip in has)


def directory(attachment: Attachment, known: Object) -> str:
    """Return where a record says that its addresses are reserved."""
    return f"{cnijson.text(known, 'dataDir')}/{attachment.network}"


def addresses(known: Object) -> list[Ip]:
    """Return the addresses that a record names; a torn one names none."""
    try:
        return [cnijson.parse_ip(text) for text in cnijson.items(known, "addresses", cnijson.as_text)]
    except (JsonError, ValueError):
        return []
