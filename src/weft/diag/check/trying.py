"""Tries what a check asks: sends each trial's flows from sockets in its source, and waits for the answers.

No process runs in nodes and pods. A datagram is sent three times at most; a connection has the time for its first
packet to be sent again.
"""

import asyncio
import itertools
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from weft.diag.check.answering import Answering, Visit
from weft.diag.check.trial import Outcome, Trial
from weft.kernel import icmp
from weft.kernel.rtnetlink.attributes import AF
from weft.model.net import Family
from weft.model.value import Value
from weft.wire.icmp import IP_HEADER, REPLY, marked, marked_request, number_in, read_marked

_WAITS: Final = (0.5, 0.7, 1.0)  # seconds for each try of a datagram
_CONNECT: Final = 2.5  # seconds: the kernel sends a connection's first packet again after one (TCP_TIMEOUT_INIT)
_AT_ONCE: Final = 128  # flows: while one is lost, others go on
_HEADER: Final = 8  # bytes of ICMP's and of UDP's
_NOTES: Final = 4  # that are given in all, of many trials
_LARGEST: Final = 1 << 16
_NO_LINGER: Final = struct.pack("ii", 1, 0)  # a connection ends at once, and no trace of it stays


class _Flow(Value, frozen=False):
    number: int
    answered: bool = False
    own: str = ""
    error: str = ""
    refusals: tuple[icmp.Refusal, ...] = ()


def at_once(visit: Visit, trials: Sequence[Trial], note: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Make trials. Raises `OSError`, and `ConfigError` if a place is not there."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each place has some sockets
    try:
        return asyncio.run(everything(visit, trials, note))
    except ExceptionGroup as group:
        raise next((error for error in group.exceptions if isinstance(error, OSError)), group) from None


async def everything(visit: Visit, trials: Sequence[Trial], note: Callable[[str], None]) -> list[Outcome]:
    """Say now and then how many are done. `ConfigError` if a place is not there."""
    answering, step = Answering(), max(_AT_ONCE, len(trials) // _NOTES)
    gates = {flows: asyncio.Semaphore(max(1, _AT_ONCE // flows)) for flows in {trial.flows for trial in trials}}
    numbers, done = itertools.count(time.monotonic_ns()), itertools.count(1)

    async def one(trial: Trial) -> list[_Flow]:
        async with gates[trial.flows]:
            flows = await asyncio.gather(*(_flow(visit, trial, answering, number) for number in of(trial)))
        if (count := next(done)) % step == 0:
            note(f"{count} of {len(trials)} trials")
        return flows

    def of(trial: Trial) -> Iterator[int]:
        return itertools.islice(numbers, trial.flows)

    try:
        await answering.open(visit, trials)
        async with asyncio.TaskGroup() as group:  # when one place is gone, no trial goes on
            tasks = [group.create_task(one(trial)) for trial in trials]
        answering.read_all()
        ports = [answering.port(trial) for trial in trials]
    finally:
        answering.close()
    return [
        _outcome(task.result(), answering.heard, theirs=answering.is_theirs(trial), port=port)
        for trial, task, port in zip(trials, tasks, ports, strict=True)
    ]


def _outcome(flows: Sequence[_Flow], heard: Mapping[int, tuple[str, str]], *, theirs: bool, port: int) -> Outcome:
    """Say what came of a trial, by its first flow that was not answered."""
    one = next((flow for flow in flows if not flow.answered), flows[0])
    at, seen = heard.get(one.number, ("", ""))
    refusal = next(iter(one.refusals), icmp.Refusal(mtu=0))
    return Outcome(
        answered=sum(flow.answered for flow in flows),
        own=one.own,
        seen=seen,
        at=at,
        theirs=theirs,
        refused=refusal.mtu,
        by=refusal.by,
        error=one.error,
        port=port,
    )


async def _flow(visit: Visit, trial: Trial, answering: Answering, number: int) -> _Flow:
    port, theirs = answering.port(trial), answering.is_theirs(trial)
    sock = await visit(trial.source, partial(_open, trial))
    flow = _Flow(number=number)
    try:
        if trial.protocol == "tcp":
            await _connection(flow, sock, (trial.address, port), theirs=theirs)
        else:
            await _datagrams(flow, sock, trial, port)
    finally:
        sock.close()
    return flow


def _open(trial: Trial) -> socket.socket:
    if trial.protocol == "icmp":
        sock = icmp.listen(trial.family, (REPLY[trial.family],))
        if trial.size:
            _whole(sock, trial.family)
        return sock
    kind = socket.SOCK_DGRAM if trial.protocol == "udp" else socket.SOCK_STREAM
    sock = socket.socket(AF[trial.family], kind)
    sock.setblocking(False)  # noqa: FBT003 - that is how socket has it
    if trial.protocol == "udp":
        _whole(sock, trial.family)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    return sock


def _whole(sock: socket.socket, family: Family) -> None:
    """Send packets whole, and keep what refuses them."""
    icmp.never_fragment(sock, family)
    icmp.keep_errors(sock, family)


async def _connection(flow: _Flow, sock: socket.socket, to: tuple[str, int], *, theirs: bool) -> None:
    """Have something said back, unless their program may be what listens."""
    loop, data = asyncio.get_running_loop(), marked(flow.number)
    try:
        async with asyncio.timeout(_CONNECT):
            await loop.sock_connect(sock, to)
            flow.own = sock.getsockname()[0]
            if theirs:
                flow.answered = True
                return
            await loop.sock_sendall(sock, data)
            flow.answered = await loop.sock_recv(sock, _LARGEST) == data
    except (OSError, TimeoutError) as error:
        flow.error = _said(error)


async def _datagrams(flow: _Flow, sock: socket.socket, trial: Trial, port: int) -> None:
    number, family = flow.number, trial.family
    by_icmp = trial.protocol == "icmp"
    inside = trial.size - IP_HEADER[family]
    data = marked_request(family, number, size=inside) if by_icmp else marked(number, size=inside - _HEADER)
    for wait in _WAITS:
        try:
            async with asyncio.timeout(wait):
                sock.connect((trial.address, port))  # a socket hears of its peer alone then, and has an own address
                flow.own = sock.getsockname()[0]
                sock.send(data)
                while not flow.answered:
                    answer = await asyncio.get_running_loop().sock_recv(sock, _LARGEST)
                    flow.answered = (read_marked(family, answer)[1] if by_icmp else number_in(answer)) == number
        except TimeoutError:
            pass
        except OSError as error:
            flow.error = _said(error)
            flow.refusals = tuple(icmp.refusals(sock, family))
            if not flow.refusals:
                await asyncio.sleep(wait)
        if flow.answered or flow.refusals:
            return


def _said(error: OSError | TimeoutError) -> str:
    return "" if error.errno is None else os.strerror(error.errno)
