"""What back end ipsec leaves behind in this thread's network namespace: charon, and policies."""

from weft.kernel.charon import process
from weft.kernel.xfrm import policies


def present() -> list[str]:
    """Say what there is, for people. Raises `OSError`."""
    found = [f"charon, process {pid}" for pid in process.running()]
    opened = policies.Policies.open()
    if opened is not None:
        found += map(str, opened.list())
        opened.close()
    return found


def remove() -> list[str]:
    """End charon, remove the policies, and say where there were any. Raises `OSError`."""
    found = ["the processes"] if process.end_all() else []
    return [*found, *(["the kernel's IPsec policies"] if policies.remove_all() else [])]
