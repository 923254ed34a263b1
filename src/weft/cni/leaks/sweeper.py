"""Sweeps for leaked attachments while the daemon runs: at its start, and every few minutes.

Host ports and masquerade that somebody has deleted are put back on the way. There is a pause after each attachment, so
that requests never wait for more.
"""

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final, NoReturn

from weft.beside.threads import start_thread
from weft.cni.host.host import ClientGone, Host, NodeHandles
from weft.cni.host.openat import open_root
from weft.cni.leaks import sweep
from weft.cni.plugins.portmap import backends
from weft.cni.sdk import record
from weft.desired.leaks import State, Stranded
from weft.model.attachment import Attachment
from weft.model.errors import Problem
from weft.model.kernel.marks import POD_ALIAS

_EVERY_SECONDS: Final = 300.0
# A request takes the interpreter for a few milliseconds; between two looks it finds it free.
_PAUSE_SECONDS: Final = 0.005
_REST_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def node_host(node: NodeHandles) -> Iterator[Host]:
    """In the node's own network namespace. Its files are those of the first client, who may have other mounts."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    root = os.dup(node.roots[0]) if node.roots else open_root("/")
    try:
        host = Host(
            node,
            plugin="",
            descriptors={"own": own, "root": root},
            env={},
            netns_problem="",
            delegate=_nobody,
            settings=_nobody,
        )
        with closing(host):
            yield host
    finally:
        os.close(root)
        os.close(own)


def _nobody(*_: object) -> NoReturn:
    raise ClientGone("no client is there to run programs, or to open anything")


def stranded(node: NodeHandles, bridges: Mapping[str, str]) -> list[Stranded]:
    """`bridges` names for each key the bridge that it was taken off; nothing if its host end was deleted."""
    found = []
    with node_host(node) as host:
        deleted = {bridge for bridge in {*bridges.values()} - {""} if host.rtnl.link(bridge) is None}
        for key, bridge in bridges.items():
            attachment = record.of_key(host, record.LINKS, key)
            if attachment is None:
                continue
            with host.claim(attachment.container_id) as claimed:
                problem = _stranding(host, attachment, bridge) if claimed else None
            if problem is not None:
                found.append(Stranded(key=key, problem=problem, bridge=bridge if bridge in deleted else ""))
    return found


class PodNames:
    """For one thread, in the node's own network namespace. A record is read once, while its link is there."""

    def __init__(self, node: NodeHandles) -> None:
        self._node = node
        self._known: dict[str, str] = {}

    def of(self, aliases: Iterable[str]) -> Mapping[str, str]:
        wanted = set(aliases)
        if new := wanted - self._known.keys():
            with node_host(self._node) as host:
                self._known |= {alias: record.pod_of_key(host, alias.removeprefix(POD_ALIAS)) for alias in new}
        self._known = {alias: pod for alias, pod in self._known.items() if alias in wanted}
        return self._known


def _stranding(host: Host, attachment: Attachment, bridge: str) -> Problem | None:
    verdict = sweep.judge(host, attachment)
    hint = "If its container lives, it has no network: delete the pod, its successor gets one"
    where = _words(attachment)
    if verdict.state is State.LEAKED:
        return Problem(code="CHECK-001", where=where, seen=verdict.proof, hint=hint)
    loose = sweep.unplugged(host, attachment) if bridge else ""
    if not loose:
        return None
    seen = f"host end {loose} is on no bridge"
    return Problem(code="CHECK-001", where=where, seen=seen, expected=f"a port of {bridge}", hint=hint)


def _words(attachment: Attachment) -> str:
    return f"network={attachment.network} container={attachment.container_id} interface={attachment.ifname}"


class Sweeper:
    """To be made in the node's network namespace, and closed before the node is. `OSError` if no thread can start."""

    def __init__(self, node: NodeHandles, *, every: float = _EVERY_SECONDS) -> None:
        self._node = node
        self._every = every
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._complained: set[tuple[Attachment, str]] = set()
        self._temporaries: frozenset[str] = frozenset()
        self._thread = start_thread(self._work, name="cni-sweep")

    def again(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        rules = False
        while True:
            try:
                self._sweep(rules=rules)
            except Exception:  # noqa: BLE001 - the next sweep may do better, and the log alone can be told
                _log.exception("the sweep for leaked attachments ended early")
            if self._stopping.wait(min(_REST_SECONDS, self._every)):
                return
            rules = self._wake.wait(self._every)
            self._wake.clear()
            if self._stopping.is_set():
                return

    def _sweep(self, *, rules: bool) -> None:
        """With `rules` only put back those that somebody has deleted with a whole table."""
        with node_host(self._node) as host:
            for attachment in sweep.attachments(host):
                if rules:
                    self._put_back(host, attachment)
                else:
                    self._look_at(host, attachment)
                if self._stopping.wait(_PAUSE_SECONDS):
                    return
            if rules:
                return
            for problem in sweep.set_aside_torn(host):
                _log.warning("%s", problem)
            self._temporaries = sweep.tidy(host, self._temporaries)

    def _look_at(self, host: Host, attachment: Attachment) -> None:
        try:
            proof = sweep.free(host, attachment)
        except Exception as error:  # noqa: BLE001 - whatever a record holds: the others are looked at all the same
            self._complain(attachment, "leaked attachment not freed", error)
            return
        if proof:
            _log.info("leaked attachment freed: %s proof=%s", _words(attachment), proof)
        else:
            self._put_back(host, attachment)

    def _put_back(self, host: Host, attachment: Attachment) -> None:
        for what, put_back in (("host ports", backends.put_back), ("masquerade", sweep.put_back_masquerade)):
            try:
                if put_back(host, attachment):
                    _log.warning("%s put back that somebody had deleted: %s", what, _words(attachment))
            except Exception as error:  # noqa: BLE001 - as above, and the other of the two
                self._complain(attachment, f"{what} not put back", error)

    def _complain(self, attachment: Attachment, what: str, error: Exception) -> None:
        if (attachment, what) not in self._complained:
            self._complained.add((attachment, what))
            _log.warning("%s: %s error=%s", what, _words(attachment), error)
