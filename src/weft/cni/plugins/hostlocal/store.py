"""host-local's directory of reservations, as upstream reads and writes it (cni.md §4.4).

A reservation is a file named by its address that holds its owner; it exists whole or not at all, and making it
fails if it exists: that alone decides who gets an address. What we remember of the directory only saves reading it.
A directory that someone else has changed in the meantime has another time of modification, and is read again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from weft.cni.sdk.host import TEMPORARY, Files, StoreView, StoreViews
from weft.model.net import Ip
from weft.wire import cnijson


def owner_of(container_id: str, ifname: str) -> bytes:
    """Return the content of a reservation."""
    return f"{container_id.strip()}\r\n{ifname}".encode()


def parse_owner(content: bytes) -> tuple[str, str]:
    """Return container id and interface of a reservation's content; what is missing in it is empty.

    Without an interface it is of the old format, or torn.
    """
    container_id, ifname, *_ = [*content.decode("utf-8", "surrogateescape").split(), "", ""]
    return container_id, ifname


class Store:
    """One network's reservations. Made by `opened`, and valid as long as that holds the lock."""

    def __init__(self, files: Files, directory: str, views: StoreViews) -> None:
        self._files = files
        self._directory = directory
        self._views = views
        stamp = files.stamp(directory)
        known = views.get(stamp[:2])
        self._view = known if known is not None and known.stamp == stamp else self._read_all()

    def confirmed(self, container_id: str, ifname: str) -> list[Ip]:
        """Return the addresses of an owner that we remember and whose files still say so.

        Those that old versions wrote without an interface are included.
        """
        owners = (owner_of(container_id, ifname), container_id.strip().encode())
        remembered = [ip for owner in owners for ip in self._view.addresses.get(owner, ())]
        return [ip for ip in remembered if self.owner(ip) in owners]

    def all(self) -> dict[Ip, bytes]:
        """Return every reservation and its content, without white space around it."""
        return dict(self._view.owners)

    def owner(self, ip: Ip) -> bytes | None:
        """Return what the file of an address says now; None if there is none."""
        return self._owner(str(ip))

    def made(self, ip: Ip) -> int:
        """Return when an address was reserved, in nanoseconds."""
        return self._files.modified(self._path(str(ip)))

    def is_taken(self, ip: Ip) -> bool:
        """Tell whether an address is reserved, as far as we remember: `reserve` has the last word."""
        return ip in self._view.owners

    def is_living(self, ip: Ip, look: Callable[[], frozenset[Ip]], *, again: bool) -> bool:
        """Tell whether a living pod has an address, even one reserved for another: a reservation may have got lost.

        `look` asks the kernel: once for each reading of the directory, because we see to what comes later, and
        `again` when the answer would be yes, because pods end.
        """
        if self._view.living is None or (again and ip in self._view.living):
            self._view.living = look()
        return ip in self._view.living

    def reserve(self, ip: Ip, owner: bytes, *, range_id: int) -> bool:
        """Take an address if no attachment has it; remember it as the last one of its range set."""
        try:
            self._files.write_new(self._path(str(ip)), owner)
            self._remember(ip, owner)
            # A hint, which upstream writes in place as well: torn, it is none.
            self._files.rewrite(self._path(f"last_reserved_ip.{range_id}"), str(ip).encode())
        except FileExistsError:
            self._remember(ip, self._owner(str(ip)) or b"")
            return False
        except BaseException:
            # Whether the file was made or not: if it says that it is this owner's, it goes.
            if self._owner(str(ip)) == owner:
                self.release(ip)
            raise
        return True

    def release(self, ip: Ip) -> None:
        """Free one address. One that is free already is fine."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(str(ip)))
        self._forget(ip)

    def release_from(self, ip: Ip, owner: bytes) -> bool:
        """Free an address if it is this owner's: the file decides, not our memory."""
        if self._owner(str(ip)) != owner:
            return False
        self.release(ip)
        return True

    def release_owner(self, container_id: str, ifname: str) -> bool:
        """Free all addresses of (id, interface); if there are none, those under the id alone (cni.md §4.5)."""
        owners = (owner_of(container_id, ifname), container_id.strip().encode())
        return any(self._release_exactly(owner) for owner in owners)

    def last_reserved(self, range_id: int) -> Ip | None:
        """Return the address given last from a range set; None if there is none, or it is no address."""
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

    def _release_exactly(self, owner: bytes) -> bool:
        freed = [self.release_from(ip, owner) for ip in list(self._view.addresses.get(owner, ()))]
        return any(freed)

    def _owner(self, name: str) -> bytes | None:
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
            owner = self._owner(name)
            if owner is not None:
                view.owners[ip] = owner
                view.addresses.setdefault(owner, set()).add(ip)
        return view

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


@contextmanager
def opened(files: Files, directory: str, views: StoreViews) -> Iterator[Store]:
    """Hold the lock of a directory that exists, for as long as its reservations are looked at and changed."""
    with files.lock(f"{directory}/lock", mode=0o750):
        store = Store(files, directory, views)
        try:
            yield store
        finally:
            store.settle()
