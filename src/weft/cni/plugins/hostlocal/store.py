"""host-local's directory of reservations, as upstream reads and writes it (cni.md §4.4), and our record beside it.

A reservation is a file named by its address that holds its owner; making it fails if it exists: that alone decides who
gets an address. Memory of the directory only saves reading it; one that someone else has changed has another time of
modification, and is read again.

Our record says which addresses an attachment got, and where (settled.md §9). It is written before a reservation is
made, so that no address is without it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from weft.cni.host.files import TEMPORARY, RootedFiles
from weft.cni.host.host import Host, StoreView, StoreViews
from weft.cni.plugins.hostlocal import conf as ipamconf
from weft.cni.sdk import record
from weft.cni.sdk.startup import Call
from weft.model.attachment import Attachment
from weft.model.net import Ip
from weft.wire import cnijson
from weft.wire.cnijson import JsonError, Object

# The reservation follows the record at once; a busy machine may take a breath in between.
_AT_ONCE_NS: Final = 60 * 10**9


def owner_of(container_id: str, ifname: str) -> bytes:
    return f"{container_id.strip()}\r\n{ifname}".encode()


def parse_owner(content: bytes) -> tuple[str, str]:
    """What is missing is empty. Without an interface it is of the old format, or torn."""
    container_id, ifname, *_ = [*content.decode("utf-8", "surrogateescape").split(), "", ""]
    return container_id, ifname


class Store:
    """One network's reservations. Made by `opened`, and valid as long as that holds the lock."""

    def __init__(self, files: RootedFiles, directory: str, views: StoreViews) -> None:
        self._files = files
        self._directory = directory
        self._views = views
        stamp = files.stamp(directory)
        known = views.get(stamp[:2])
        self._view = known if known is not None and known.stamp == stamp else self._read_all()

    def confirmed(self, container_id: str, ifname: str) -> list[Ip]:
        """Those whose files still say so. Those that old versions wrote without an interface are included."""
        owners = (owner_of(container_id, ifname), container_id.strip().encode())
        remembered = [ip for owner in owners for ip in self._view.addresses.get(owner, ())]
        return [ip for ip in remembered if self.owner(ip) in owners]

    def all(self) -> dict[Ip, bytes]:
        return dict(self._view.owners)

    def made(self, ip: Ip) -> int:
        return self._files.modified(self._path(ip))

    def is_taken(self, ip: Ip) -> bool:
        """As far as we remember: `reserve` has the last word."""
        return ip in self._view.owners

    def is_living(self, ip: Ip, look: Callable[[], frozenset[Ip]], *, again: bool) -> bool:
        """Tell whether a living pod has an address, even one reserved for another: a reservation may have got lost.

        `look` asks the kernel, once for each reading of the directory, because we see to what comes later; and `again`
        when the answer would be yes, because pods end.
        """
        if self._view.living is None or (again and ip in self._view.living):
            self._view.living = look()
        return ip in self._view.living

    def reserve(self, ip: Ip, owner: bytes, *, range_id: int) -> bool:
        """Take an address if no attachment has it; remember it as the last one of its range set."""
        try:
            self._files.write_new(self._path(ip), owner)
            self._remember(ip, owner)
            # A hint, which upstream writes in place as well: torn, it is none.
            self._files.rewrite(self._path(f"last_reserved_ip.{range_id}"), str(ip).encode())
        except FileExistsError:
            self._remember(ip, self.owner(ip) or b"")
            return False
        except BaseException:
            # Whether the file was made or not: if it says that it is this owner's, it goes.
            if self.owner(ip) == owner:
                self.release(ip)
            raise
        return True

    def release(self, ip: Ip) -> None:
        """One that is free already is fine."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(ip))
        self._forget(ip)

    def release_from(self, ip: Ip, owner: bytes) -> bool:
        """Free an address if it is this owner's: the file decides, not our memory."""
        if self.owner(ip) != owner:
            return False
        self.release(ip)
        return True

    def release_owner(self, container_id: str, ifname: str) -> bool:
        """Free all addresses of (id, interface); if there are none, those under the id alone (cni.md §4.5)."""
        for owner in (owner_of(container_id, ifname), container_id.strip().encode()):
            freed = [self.release_from(ip, owner) for ip in list(self._view.addresses.get(owner, ()))]
            if any(freed):
                return True
        return False

    def last_reserved(self, range_id: int) -> Ip | None:
        try:
            return cnijson.parse_ip(self._files.read(self._path(f"last_reserved_ip.{range_id}")).decode().strip())
        except (FileNotFoundError, ValueError):
            return None

    def look_again(self) -> None:
        """Read the directory again: our memory may be a tick of the clock behind another program."""
        self._view = self._read_all()

    def settle(self) -> None:
        """Keep what we know for the next request, if we can: what was done stays done without it."""
        with suppress(OSError):
            stamp = self._files.stamp(self._directory)
            self._view.stamp = stamp
            self._views[stamp[:2]] = self._view

    def owner(self, name: Ip | str) -> bytes | None:
        try:
            return self._files.read(self._path(name)).strip()
        except OSError:
            return None  # gone, or no file: if it is in the way, making a reservation will tell

    def _remember(self, ip: Ip, owner: bytes) -> None:
        self._forget(ip)
        self._view.owners[ip] = owner
        self._view.addresses.setdefault(owner, set()).add(ip)

    def _forget(self, ip: Ip) -> None:
        owner = self._view.owners.pop(ip, None)
        if owner is not None:
            addresses = self._view.addresses[owner]
            addresses.discard(ip)
            if not addresses:
                del self._view.addresses[owner]

    def _read_all(self) -> StoreView:
        view = StoreView()
        for name in self._files.list(self._directory):
            if name.startswith(TEMPORARY):
                # Its writer was killed: such files are only written under the lock, which we hold.
                with suppress(FileNotFoundError):
                    self._files.unlink(self._path(name))
                continue
            try:
                ip = cnijson.parse_ip(name)
            except ValueError:
                continue
            owner = self.owner(name)
            if owner is not None:
                view.owners[ip] = owner
                view.addresses.setdefault(owner, set()).add(ip)
        return view

    def _path(self, name: Ip | str) -> str:
        return f"{self._directory}/{name}"


@contextmanager
def opened(host: Host, directory: str) -> Iterator[Store]:
    """Hold the lock of a directory that exists, for as long as its reservations are looked at and changed."""
    with host.files.lock(f"{directory}/lock", mode=0o750):
        store = Store(host.files, directory, host.stores)
        try:
            yield store
        finally:
            store.settle()


def keep_given(call: Call, data_dir: str, addresses: Iterable[Ip]) -> None:
    record.keep(call, record.ADDRESSES, {"dataDir": data_dir, "addresses": [str(ip) for ip in addresses]})


def undo(host: Host, attachment: Attachment, known: Object) -> None:
    """Free what the record names and the attachment still has. `FileNotFoundError` if the store cannot be seen."""
    owner = owner_of(attachment.container_id, attachment.ifname)
    with opened(host, recorded_directory(attachment, known)) as reservations:
        for ip in recorded_addresses(known):
            reservations.release_from(ip, owner)


def given_to_valid(call: Call) -> dict[Ip, bytes]:
    directory = ipamconf.data_dir(call.config)
    return {
        ip: owner_of(attachment.container_id, attachment.ifname)
        for attachment, known in record.all_of(call.host, record.ADDRESSES)
        if attachment.network == call.network and call.is_valid(attachment) and known.get("dataDir") == directory
        for ip in recorded_addresses(known)
    }


def is_anothers(host: Host, attachment: Attachment, known: Object) -> bool:
    """It may have got the same address again, but not at the time when we wrote ours down."""
    given, latest = recorded_addresses(known), record.written(host, record.ADDRESSES, attachment) + _AT_ONCE_NS
    with opened(host, recorded_directory(attachment, known)) as reservations:
        has = reservations.confirmed(attachment.container_id, attachment.ifname)
        return any(ip not in given or reservations.made(ip) > latest for ip in has)


def recorded_directory(attachment: Attachment, known: Object) -> str:
    return f"{cnijson.text(known, 'dataDir')}/{attachment.network}"


def recorded_addresses(known: Object) -> list[Ip]:
    """A torn record names none."""
    try:
        return [cnijson.parse_ip(text) for text in cnijson.items(known, "addresses", cnijson.as_text)]
    except (JsonError, ValueError):
        return []
