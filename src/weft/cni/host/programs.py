"""The host's programs for firewall rules, run in the caller's namespace. No other module of a plugin starts any.

Text that comes from a request reaches programs by standard input or as one argument, never through a shell.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from weft.beside.programs import KilledError, run_here
from weft.kernel.tools import MOST, SEARCH_PATH, find
from weft.model.kernel.nftset import Table
from weft.wire import iptables, nft
from weft.wire.cni import INTERNAL, CniError, failure

T = TypeVar("T")

IPTABLES: Final = "iptables"
NFTABLES: Final = "nftables"

_PROBES: Final = {IPTABLES: ("iptables", "-t", "filter", "-S", "INPUT"), NFTABLES: ("nft", "list", "tables")}
_IPTABLES: Final = {4: "iptables", 6: "ip6tables"}
# Another program may hold the lock of iptables. Less than a request may take (LIMIT_SECONDS in `server`), so that its
# caller gets to know this.
_TIMEOUT_SECONDS: Final = 25
_ATTEMPTS: Final = 5


class Refused(CniError):
    """A program ran to its end and said no."""


def iptables_table(family: int, name: str = "nat") -> iptables.Table:
    return iptables.parse(run(f"{_IPTABLES[family]}-save", "-t", name))


def change_iptables(family: int, look: Callable[[iptables.Table], Sequence[str]], name: str = "nat") -> None:
    def commit(lines: Sequence[str]) -> None:
        run(f"{_IPTABLES[family]}-restore", "--wait", "--noflush", stdin=iptables.payload(name, lines))

    settle(lambda: look(iptables_table(family, name)), commit)


def nft_table(table: Table) -> nft.Listing:
    """Empty if it is not there."""
    if f"table {table}" not in run("nft", "list", "tables").splitlines():
        return {}
    return nft.parse(run("nft", "-a", "list", "table", table.family, table.name))


def change_nft(table: Table, look: Callable[[nft.Listing], Sequence[str]]) -> None:
    settle(lambda: look(nft_table(table)), run_nft)


def run_nft(lines: Iterable[str]) -> None:
    run("nft", "-f", "-", stdin=nft.payload(lines))


def settle(look: Callable[[], Sequence[T]], commit: Callable[[Sequence[T]], None]) -> None:
    """Commit what `look` finds to be needed, if anything. Raises `CniError` if it never succeeds.

    What something else changes between look and commit makes the commit fail: then both are done again, also if the
    same is needed as before. A change of other rules fails a commit of legacy iptables (EAGAIN), and what was in the
    way may be gone.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        needed = look()
        if not needed:
            return
        try:
            commit(needed)
        except Refused:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def choose(wanted: str = "") -> str:
    """Iptables, unless only nft works."""
    if wanted:
        return wanted
    return NFTABLES if not works(IPTABLES) and works(NFTABLES) else IPTABLES


def works(kind: str) -> bool:
    try:
        run(*_PROBES[kind])
    except CniError:
        return False
    return True


def run(program: str, *arguments: str, stdin: str = "") -> str:
    """Return what a program prints. Raises `CniError` if it is missing, fails, does not end or prints for ever."""
    path = find(program, SEARCH_PATH)
    if path is None:
        raise failure(f"{program}: program not found", f"HOST-002: not in {SEARCH_PATH}")
    # What others have put into comments may be anything.
    text = stdin.encode("utf-8", "surrogateescape")
    try:
        ran = run_here([path, *arguments], environ=None, text=text, seconds=_TIMEOUT_SECONDS, most=MOST)
    except KilledError as error:
        late = error.errno == errno.ETIMEDOUT
        raise failure(f"{program}: {f'no answer within {_TIMEOUT_SECONDS} s' if late else error.strerror}") from error
    except OSError as error:  # no processes, descriptors or memory left for it
        raise failure(f"{program}: cannot be started: {error.strerror}") from error
    out = ran.out.decode("utf-8", "surrogateescape")
    if ran.status:
        said = ran.err.decode("utf-8", "surrogateescape").strip() or out.strip()
        raise Refused(INTERNAL, f"running {program} {' '.join(arguments)}: {said}")
    return out
