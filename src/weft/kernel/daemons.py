"""The daemons of a network namespace: their names among its abstract sockets, and questions to them.

A daemon answers at `instance/NAME`; `weft.daemon.disk.instance` says who may claim names. Questions raise `Unavailable`
without an answer.
"""

import errno
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weft.kernel.unixsockets import SEAL, Holder, holders_below, is_root, peer_of, seal
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.node.meshstate import MeshAsk, MeshDone
from weft.model.node.nodestate import HealthState, NodeState, Plan, PlanAnswer, PoliciesTold

PREFIX: Final = "weft/"
INSTANCE: Final = "instance/"
SOCKETS: Final = Path("/proc/thread-self/net/unix")  # of the thread's network namespace (proc(5))
CHUNK: Final = 1 << 16  # bytes that are read of an answer at a time
_MOST: Final = 64 << 20  # bytes of an answer: of 100,000 peers it is a third of that
_ADDRESSES: Final = 64  # of one question, which may have 4 KiB
ASK_STATE: Final = b'{"ask":"state"}\n'
ASK_PLAN: Final = b'{"ask":"plan"}\n'  # of which the answer is `model.node.nodestate.PlanAnswer`
ASK_HEALTH: Final = b'{"ask":"health"}\n'  # of which the answer is `model.node.nodestate.HealthState`

if TYPE_CHECKING:
    from weft.model.node.history import EventsSince

_SECONDS: Final = 10.0  # for all of an answer

T = TypeVar("T")


def ask_events(after: int) -> bytes:
    """The answer is `model.node.history.EventsSince`."""
    return b'{"ask":"events","after":%d}\n' % after


def ask_policies(names: Sequence[str]) -> bytes:
    """The answer is `model.node.nodestate.PoliciesTold`; a question may have 4 KiB."""
    return msgspec.json.encode({"ask": "policies", "names": names}) + b"\n"


def names(sockets: str) -> list[str]:
    """The claimed names, one for each socket, from the text of `SOCKETS`."""
    parts = (line.partition(f" @{PREFIX}") for line in sockets.splitlines())
    return [name for _, found, name in parts if found]


def living() -> list[str]:
    """The names of the daemons in the calling thread's network namespace.

    Any process may claim such names, so the socket itself shows whose it is (`is_daemons`).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        least = SEAL if seal(probe) else 0
    try:
        found = holders_below(PREFIX + INSTANCE)
    except OSError:  # a kernel without unix_diag: the process that answers shows whether it is root's
        names_there = names(SOCKETS.read_text(errors="replace"))
        return sorted({name.removeprefix(INSTANCE) for name in names_there if name.startswith(INSTANCE)})
    sealed = [name for name, those in found.items() if is_daemons(those, SEAL)]
    return sorted(sealed or (name for name, those in found.items() if is_daemons(those, least)))


def is_daemons(holders: Iterable[Holder], least: int) -> bool:
    """Tell whether a daemon made one of these sockets: root, with a receive buffer of `least` bytes.

    `least` is `SEAL` where daemons can have one, else 0. That takes CAP_NET_ADMIN in the network's own user namespace,
    which a container's root lacks.
    """
    return any(holder.uid == 0 and holder.room >= least for holder in holders)


def said(connection: socket.socket, *, seconds: float) -> bytes:
    """Read until the other side closes. `TimeoutError` after `seconds`, `OSError` for too long an answer."""
    end = time.monotonic() + seconds
    answer = bytearray()
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not goes_on(answer, connection.recv(CHUNK)):
            return bytes(answer)


def goes_on(answer: bytearray, more: bytes) -> bool:
    """Add what a daemon says next; nothing ends an answer. `OSError` for too long a one."""
    answer.extend(more)
    if len(answer) > _MOST:
        raise OSError(errno.EMSGSIZE, f"it says more than {_MOST >> 20} MiB")
    return bool(more)


def address(name: str) -> str:
    return f"\0{PREFIX}{INSTANCE}{name}"


def choose(wanted: str | None) -> str:
    """The name of the daemon that is meant. `Unavailable` if there is none, or several and no name."""
    names = living()
    if wanted is not None and wanted not in names:
        raise Unavailable(_problem(f"--instance {wanted}", "no daemon of that name", expected=" or ".join(names)))
    if not names:
        hint = "Start weftd, or enter its network namespace; its log says why it ended"
        raise Unavailable(_problem("this network namespace", "no weftd runs here", hint=hint))
    if wanted is None and len(names) > 1:
        raise Unavailable(_problem("--instance", f"{len(names)} daemons run here", expected=" or ".join(names)))
    return wanted or names[0]


def ask(name: str, question: bytes) -> bytes:
    where = f"weftd of instance {name}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_SECONDS)
            asking.connect(address(name))
            if not is_root(asking):
                raise Unavailable(_problem(where, "another user's process has its name"))
            asking.sendall(question)
            answer = said(asking, seconds=_SECONDS)
    except OSError as error:
        seen = f"does not answer within {_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error.strerror)
        raise Unavailable(_problem(where, seen, hint="It may be stopped or stuck: see its log")) from error
    if not answer:
        raise Unavailable(_problem(where, "gave no answer", hint="It may be of another version"))
    return answer


def process(name: str) -> int:
    """The daemon's process id, 0 if it is in another pid namespace."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_SECONDS)
            asking.connect(address(name))
            pid, uid = peer_of(asking)
            return 0 if uid else pid
    except OSError as error:
        raise Unavailable(_problem(f"weftd of instance {name}", str(error.strerror))) from error


def state(name: str) -> NodeState:
    return _read(name, ASK_STATE, NodeState)


def events(name: str, after: int) -> "EventsSince":
    from weft.model.node.history import EventsSince

    return _read(name, ask_events(after), EventsSince)


def plan(name: str) -> Plan:
    answer = _read(name, ASK_PLAN, PlanAnswer)
    if answer.plan is None:
        raise Unavailable(*answer.unable)
    return answer.plan


def mesh(name: str, ask: MeshAsk) -> tuple[str, ...]:
    """What its mesh does, or would do, in lines. Raises `ConfigError` for what it refuses."""
    question = msgspec.json.encode({"ask": "mesh", "mesh": ask}) + b"\n"
    done = _read(name, question, MeshDone)
    if done.unable:
        raise ConfigError(*done.unable)
    return done.lines


def pods_at(name: str, addresses: Iterable[str]) -> dict[str, str]:
    """Names of pods, by those of the addresses that one is known to have."""
    found, wanted = dict[str, str](), sorted(addresses)
    for start in range(0, len(wanted), _ADDRESSES):
        question = msgspec.json.encode({"ask": "pods", "addresses": wanted[start : start + _ADDRESSES]}) + b"\n"
        found |= _read(name, question, dict[str, str])
    return found


def policies(name: str) -> PoliciesTold:
    """Raises `Unavailable` of one that enforces none, too."""
    return _read(name, ask_policies(()), PoliciesTold)


def health(name: str) -> HealthState:
    return _read(name, ASK_HEALTH, HealthState)


def _read(name: str, question: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(ask(name, question), type=kind)
    except msgspec.MsgspecError as error:
        hint = "It may have ended meanwhile, or be of another version"
        raise Unavailable(_problem(f"weftd of instance {name}", f"its answer is broken: {error}", hint=hint)) from error


def _problem(where: str, seen: str, *, expected: str = "", hint: str = "") -> Problem:
    return Problem(code="INST-003", where=where, seen=seen, expected=expected, hint=hint)
