"""What back end ipsec leaves behind in this thread's network namespace: charon, and policies."""

from collections.abc import Callable, Iterable

from weft.kernel.charon import process
from weft.kernel.xfrm import policies
from weft.model.net import Net


def charons() -> list[str]:
    """Say which charons of ours run, for people. Raises `OSError`."""
    return [f"charon, process {pid}" for pid in process.running()]


def remove(networks: Callable[[], Iterable[Net]]) -> list[str]:
    """End charon, remove the policies within `networks`, and say where there were any. Raises `OSError`.

    Policies bear no mark of ours: those of other networks may be another program's.
    """
    found = ["the processes"] if process.end_all() else []
    return [*found, *(["the kernel's IPsec policies"] if policies.remove(networks) else [])]
