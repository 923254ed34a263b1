"""What back end ipsec leaves behind in this thread's network namespace: charon, and policies.

Policies bear no mark of ours, and flanneld's have the same form: only those within networks of ours are ours.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from weft.daemon.backends.backend import Left
from weft.daemon.backends.ipsec import policies, process
from weft.desired.backends.ipsec.objects import DEVICE, Policy
from weft.model.kernel.objects import Ownership
from weft.model.net import Net


def look(networks: Collection[Net]) -> Left:
    """Find which charons of ours run, and judge all policies of our form. Raises `OSError`."""
    charons = tuple(f"charon, process {pid}" for pid in process.running())
    return judged(policies.present(), networks, charons)


def judged(found: Collection[Policy], networks: Collection[Net], charons: tuple[str, ...] = ()) -> Left:
    """Tell which policies are ours; without a network of ours nobody knows."""
    ownership = Ownership(devices=frozenset({DEVICE}), networks=tuple(networks))
    ours, others = list[Policy](), list[Policy]()
    for policy in found:
        (ours if policy.is_within(ownership) else others).append(policy)
    named = (*charons, *map(str, ours))
    if not networks:
        return Left(ours=named, unknown=tuple(others))
    why = f"it is not between subnets of {', '.join(map(str, networks))}"
    return Left(ours=named, foreign=tuple(f"{policy}: {why}" for policy in others))


def remove(networks: Callable[[], Iterable[Net]], /, *, wholly: bool = False) -> Sequence[str]:  # noqa: ARG001 - nothing is left
    """End charon, remove the policies within `networks`, and say where there were any. Raises `OSError`."""
    found = ["the processes"] if process.end_all() else []
    return [*found, *(["the kernel's IPsec policies"] if policies.remove(networks) else [])]
