"""An etcd of three members in the underlay, with TLS, certificates of clients and users, whose tokens expire at once.

Its members can be lost, hung, filled up, defragmented, given other certificates, and put back to an old snapshot, in
the way in which an operator does these things.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Final, TypeVar

from tests.support.etcd import Certs, make_certs, wheel
from tests.support.netns import Netns
from tests.support.waiting import looks
from tests.support.weftd import STORE, NetnsEtcd

T = TypeVar("T")
USER: Final = "weft"
PASSWORD: Final = "a-password-of-weft"
QUOTA: Final = 24 << 20  # bytes of a member's data
_JUNK: Final = "/junk"
_FLAGS: Final = (
    *("--unsafe-no-fsync", "--auth-token-ttl=2", "--bcrypt-cost=4", f"--quota-backend-bytes={QUOTA}"),
    *("--heartbeat-interval=100", "--election-timeout=1000"),  # a busy machine would elect all the time
)


class Member(NetnsEtcd):
    """One of three."""

    SECONDS = 60.0

    def spawn(self, *flags: str) -> None:
        super().spawn(*_FLAGS, *flags)


class Client(NetnsEtcd):
    """etcdctl, which asks whichever member answers; this is no server."""

    def __init__(self, folder: Path, netns: Netns, certs: Certs, members: Iterable[Member]) -> None:
        super().__init__(folder, wheel(), netns, certs)
        self._members = tuple(members)

    @property
    def url(self) -> str:
        return ",".join(member.url for member in self._members)

    def ctl(self, *argv: str, stdin: str = "") -> str:
        """Run etcdctl until it succeeds: for a while there may be no leader, or no member whose token is good."""
        return again(lambda: super(Client, self).ctl(*argv, stdin=stdin))


class Trio:
    """The members; `client` asks them, and `files` are what daemons are to prove themselves with."""

    def __init__(self, folder: Path, netns: Netns) -> None:
        self._folder = folder
        self._generation = 0
        self.files = make_certs(folder / "certs", STORE)
        self.members = [netns.call(lambda n=n: Member(folder / f"m{n}", wheel(), netns, self.files)) for n in range(3)]
        self.client = netns.call(lambda: Client(folder / "client", netns, self.files, self.members))
        for number, member in enumerate(self.members):
            member.name = f"m{number}"
        for member in self.members:
            member.members = {each.name: each.peer_url for each in self.members}
        self.start()
        self.client.add_user(USER, PASSWORD, prefix="/")
        self.client.enable_auth()
        for member in self.members:
            member.user = self.client.user

    def start(self) -> None:
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.wait()

    def close(self) -> None:
        for member in self.members:
            member.kill()

    def leader(self) -> Member:
        def found() -> Member:
            for member in self.members:
                status = json.loads(member.ctl("endpoint", "status", "--write-out=json"))[0]["Status"]
                if status["leader"] == status["header"]["member_id"]:
                    return member
            raise AssertionError("no member leads")

        return again(found)

    def fill(self) -> None:
        """Write until the members take no more: an alarm, which stays until `clear`."""
        for number in range(2 * QUOTA >> 20):
            try:
                self.members[0].ctl("put", f"{_JUNK}/{number}", stdin="x" * (1 << 20))
            except AssertionError as error:
                if "database space exceeded" in str(error):
                    return
        raise AssertionError("the quota was not reached")

    def clear(self) -> None:
        """Free the space and end the alarm, in the four steps of etcd's documentation."""
        self.client.delete(_JUNK, "--prefix")
        self.client.compact()
        for member in self.members:
            again(lambda member=member: member.ctl("defrag"))
        self.client.ctl("alarm", "disarm")
        assert not self.client.ctl("alarm", "list").strip()

    def restore(self, snapshot: Path) -> None:
        """Have all members begin anew with what an old snapshot knows."""
        for member in self.members:
            member.kill()
        for member in self.members:
            member.restore(snapshot)
        self.start()

    def rotate(self) -> None:
        """Replace the authority and all certificates: both are trusted while one member after the other restarts."""
        self._generation += 1
        new = make_certs(self._folder / f"certs{self._generation}", STORE)
        old_authority, authority = Path(self.files.ca).read_text(), Path(new.ca).read_text()
        self._trust(old_authority + authority)
        for old, path in zip(astuple(self.files)[1:], astuple(new)[1:], strict=True):
            Path(old).write_bytes(Path(path).read_bytes())
        self._trust(authority)

    def _trust(self, authorities: str) -> None:
        Path(self.files.ca).write_text(authorities)
        for member in self.members:
            member.restart()


def again(act: Callable[[], T]) -> T:
    """What `act` returns once it does not fail."""
    fault: AssertionError | None = None
    for _ in looks(20):
        try:
            return act()
        except AssertionError as error:
            fault = error
    assert fault is not None
    raise fault
