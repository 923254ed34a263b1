"""The plane of charon: its process, and the keys and connections that it gets.

The process outlives the daemon: one that starts finds the charon of before, so no packet is lost, and tells it all
again, of which charon takes what differs. charon does not tell keys or a connection's options, so what this daemon has
not told it counts as different. A look every two seconds finds one that has died.
"""

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from ipaddress import IPv4Address
from typing import Final

from weft.daemon.backends.ipsec import process, talk
from weft.daemon.backends.ipsec.talk import Session
from weft.daemon.disk import files
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import Children, ThreadPlane, attempt, wait_for_device
from weft.desired.backends.ipsec.objects import DEVICE, Charon, Connection, SharedKey, connection_of
from weft.kernel.rtnetlink.rtnl import Rtnl
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects
from weft.model.value import Secret
from weft.plan.diff import Put, Step

log = logging.getLogger(__name__)

_UNKNOWN: Final = Secret("")
_SESSIONS_EVERY: Final = 5  # looks
_MOST_LOG: Final = 1 << 20  # bytes


class CharonPlane(ThreadPlane):
    """The charon of this instance, which outlives the plane."""

    kinds = frozenset({"charon", "ipseckey", "ipsecconn"})
    sweep = 2.0

    def __init__(self, place: Place) -> None:
        self._configured = place.directory / "charon.conf"
        self._socket = place.directory / process.SOCKET
        self._log = place.directory / "charon.log"
        self._children = Children()
        self._pid = 0
        self._told: dict[Key, Object] = {}  # to the process `_pid`, by this daemon
        self._looks = 0
        self._idle: set[str] = set()  # connections by which nothing went at the last look

    def _look(self, _known: Objects, /) -> dict[Key, Object]:
        """See the process, and the names of what it knows; every tenth second also what goes by it."""
        self._children.reap()
        session = self._session()
        if session is None:
            self.counts = {}
            return {}
        with closing(session):
            charon = self._charon()
            keys = [SharedKey(owner=owner, secret=_UNKNOWN) for owner in talk.owners(session)]
            connections = [each for each in map(connection_of, talk.connections(session)) if each is not None]
            if self._looks % _SESSIONS_EVERY == 0:
                self._begin_again(session, charon, connections)
            self._looks += 1
        self._keep_log_short()
        found: list[Object] = [charon, *(self._told.get(each.key, each) for each in (*keys, *connections))]
        return {thing.key: thing for thing in found}

    def _session(self) -> Session | None:
        """Talk to the charon that has our socket; what was told to another one is not known to it."""
        session = Session.to(self._socket)
        pid = 0 if session is None else session.pid
        if pid != self._pid:
            self._pid = pid
            self._told.clear()
            self._idle.clear()
        return session

    def _charon(self) -> Charon:
        """The process as it is; one that was started otherwise than this weft would counts as another."""
        text = self._configuration()
        if text == process.configuration(self._socket, in_process=False):
            return Charon()
        if text != process.configuration(self._socket, in_process=True):
            return Charon(mtu=-1)
        with Rtnl.open() as rtnl:
            link = rtnl.link(DEVICE)
            here = [] if link is None else [each.ip for each in rtnl.addresses(link.index, family=4)]
        address = here[0] if len(here) == 1 and isinstance(here[0], IPv4Address) else None
        return Charon(in_process=True, address=address, mtu=0 if link is None else link.mtu)

    def _configuration(self) -> str:
        """What charon was started with; empty where that cannot be read."""
        try:
            return self._configured.read_text(errors="replace")
        except OSError:
            return ""

    def _begin_again(self, session: Session, charon: Charon, connections: Sequence[Connection]) -> None:
        """Count what goes by charon, and have it try those again that it gave up because the peer refused."""
        alive = talk.sessions(session)
        idle = {each.name for each in connections} - alive.keys()
        for each in connections:
            if each.name in idle & self._idle and each.key in self._told:
                with suppress(OSError):
                    talk.initiate(session, each)
        self._idle = idle
        up = sum(alive.get(each.name, False) for each in connections)
        self.counts = {"connections": len(connections), "sessions": up, "in user space": int(charon.in_process)}

    def _keep_log_short(self) -> None:
        with suppress(OSError):
            if self._log.stat().st_size > _MOST_LOG:
                os.truncate(self._log, 0)

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        failures: list[Failure] = []
        told = [step for step in steps if not isinstance(step.object, Charon)]
        for step in steps:
            if isinstance(step.object, Charon):
                work = partial(self._serve, step.object) if isinstance(step, Put) else self._end
                failures += attempt([step], work)
        if not told:
            return failures
        try:
            session = self._session()
        except OSError as error:
            return failures + attempt(told, partial(_refuse, error))
        if session is None:
            gone = OSError(errno.ENOTCONN, "no charon runs")
            return failures + attempt([step for step in told if isinstance(step, Put)], partial(_refuse, gone))
        with closing(session):
            for step in told:
                failures += attempt([step], partial(self._tell, session, step))
        return failures

    def _tell(self, session: Session, step: Step) -> None:
        self._told.pop(step.object.key, None)  # first: what fails may have been done
        match step.object:
            case SharedKey() as key if isinstance(step, Put):
                talk.load_key(session, key)
            case SharedKey(owner=owner):
                talk.unload_key(session, owner)
            case Connection() as connection if isinstance(step, Put):
                talk.load_connection(session, connection)
            case Connection(name=name):
                talk.unload_connection(session, name)
        if isinstance(step, Put):
            self._told[step.object.key] = step.object

    def _serve(self, wanted: Charon) -> None:
        """Start charon, in place of one that was started otherwise, and give its device what it needs."""
        configuration = process.configuration(self._socket, in_process=wanted.in_process)
        if not self._answers() or self._configuration() != configuration:
            self._end()
            files.write_atomically(self._configured, configuration.encode(), 0o600, sync=False)
            self._start(wanted)
        if wanted.in_process:
            self._set_device(wanted)

    def _start(self, wanted: Charon) -> None:
        pid = process.start(self._configured, self._log)
        self._children.add(pid)
        try:
            self._children.wait_for(pid, self._answers)
        except OSError as error:
            said = self._last_words()
            raise OSError(error.errno, f"{error.strerror}; it said: {said}") from None
        finally:
            process.forget_number(pid)
        log.info("%s: started, process %d", wanted, pid)

    def _answers(self) -> bool:
        session = Session.to(self._socket)
        if session is None:
            return False
        with closing(session):
            return talk.is_up(session)

    def _last_words(self) -> str:
        lines = ""
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").strip()
        return lines.splitlines()[-1][:200] if lines else "nothing"

    def _set_device(self, wanted: Charon) -> None:
        try:
            wait_for_device(DEVICE)
        except OSError:
            missing = f"charon has made no {DEVICE}: is its plugin kernel-libipsec there, and /dev/net/tun"
            raise OSError(errno.ENODEV, f"{missing}? It said: {self._last_words()}") from None
        with Rtnl.open() as rtnl:
            link = rtnl.link(DEVICE)
            if link is None or wanted.address is None:
                raise OSError(errno.ENODEV, f"{DEVICE} is gone again")
            rtnl.set_link(link.index, mtu=wanted.mtu, up=True)
            rtnl.add_address(link.index, wanted.address, 32, replace=True)
            for other in rtnl.addresses(link.index, family=4):
                if other.ip != wanted.address:
                    rtnl.delete_address(link.index, other.ip, other.prefixlen)

    def _end(self) -> None:
        process.end_all()
        self._children.wait_for_end()


def _refuse(error: OSError) -> None:
    raise error
