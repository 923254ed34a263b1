"""What the node's daemon says of itself, or that there is none."""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from weft.diag.finding import Finding, check, finding
from weft.diag.sight.node import Sight
from weft.model.text import counted

_DAEMONS: Final = frozenset(("weftd", "flanneld"))
_PEERS: Final = 10  # that are named one by one
_OFTEN: Final = 4


@check("daemon", "a daemon serves this node", "daemon", "programs")
def _runs(sight: Sight) -> Iterator[Finding]:
    if sight.daemon is not None or sight.programs & _DAEMONS:
        return
    if sight.subnet_env is not None or sight.devices:
        seen = "no daemon runs; what it made is still here"
        hint = (
            "Pods keep their network, but changes of the cluster are missed, and nothing is put back."
            " Start the daemon; its log says why it ended"
        )
        yield finding("INST-003", "this node's daemon", seen, hint)


@check("subnet-file", "plugins know this node's subnet", "networks", "subnet_env", "programs")
def _has_told(sight: Sight) -> Iterator[Finding]:
    wanting = [network for network in sight.networks if "flannel" in network.plugins]
    if wanting and sight.subnet_env is None:
        where = f"subnet.env, which {wanting[0].file} needs"
        seen = "it is missing, so no new pod gets a network"
        parts = {} if sight.daemon is None else sight.daemon.parts
        reasons = [f"{name}: {problem}" for name, problem in parts.items() if problem is not None]
        hint = (
            "; ".join(reasons) or "The daemon writes it once it has a lease, and its peers are programmed: see its log"
        )
        if sight.daemon is None and not sight.programs & _DAEMONS and not sight.devices:
            hint = f"No daemon runs here. Start it; if this network is not used any more: rm {quote(wanting[0].file)}"
        yield finding("LEASE-001", where, seen, hint)


@check("readiness", "the daemon finds nothing wrong", "daemon")
def _is_well(sight: Sight) -> Iterator[Finding]:
    state = sight.daemon
    if state is None:
        return
    for problem in (*state.parts.values(), state.store, *state.losses.values()):
        if problem is not None:
            yield Finding(problem=problem)
    if state.faults:
        seen = f"through a bug of weft's, parts of it crashed {counted(state.faults, 'time')} and were restarted"
        yield finding("INST-002", "weftd", seen, "The log has each; please report it", weight="warning")
    troubles = [peer.doubt for peer in state.peers if peer.doubt is not None][:_PEERS]
    for problem in (*troubles, *(refused.trouble for refused in state.refused[:_PEERS])):
        yield Finding(problem=problem, weight="warning")


@check("peers", "each peer has what leads to it", "daemon")
def _serves(sight: Sight) -> Iterator[Finding]:
    state = sight.daemon
    for peer in () if state is None else state.peers:
        if peer.trouble is not None:
            yield Finding(problem=peer.trouble)
        elif peer.lacks:
            seen = "; ".join(peer.lacks[:_PEERS])
            hint = "weftd tries again by itself; the kernel's message above says why it fails"
            yield finding("FDB-001", f"peer {peer.id}", seen, hint)


@check("repairs", "nothing is put back again and again", "daemon")
def _stays(sight: Sight) -> Iterator[Finding]:
    """What the daemon repairs again and again looks well at any moment, and pods lose packets each time."""
    loops = {} if sight.daemon is None else sight.daemon.loops
    for code, times in ((code, times) for loop in loops.values() for code, times in loop.lately.items()):
        if times >= _OFTEN:
            seen = f"weftd had to put it back on {times} occasions in the last ten minutes"
            hint = (
                "Another program keeps changing it: 'weft events' shows what and when,"
                f" 'weft explain {code}' names likely programs"
            )
            yield finding(code, "what another program changes", seen, hint, weight="warning")


CHECKS: Final = (_runs, _has_told, _is_well, _stays, _serves)
