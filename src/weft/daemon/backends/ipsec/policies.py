"""The kernel's IPsec policies in this thread's namespace, as far as they have the form of ours and upstream's.

Their plane leaves them when the daemon ends, and looks at all of them every ten seconds.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Final, Self

from weft.daemon.backends.ipsec import xfrm
from weft.daemon.planes.contract import Place
from weft.daemon.planes.serving import ThreadPlane, failed
from weft.desired.backends.ipsec.objects import DEVICE, Policy
from weft.kernel.rtnetlink.netlink import NetlinkError, NetlinkSocket
from weft.model.errors import Failure
from weft.model.kernel.objects import Key, Object, Objects, Ownership
from weft.model.net import Net
from weft.plan.diff import Put, Step

_MOST: Final = 64  # policies in one send, for which a socket has room


class Policies:
    """A socket of NETLINK_XFRM. One thread at a time."""

    def __init__(self, opened: NetlinkSocket) -> None:
        self._socket = opened

    @classmethod
    def open(cls) -> Self | None:
        """None where the kernel has no XFRM at all."""
        try:
            return cls(NetlinkSocket.open(xfrm.NETLINK_XFRM))
        except OSError as error:
            if error.errno == errno.EPROTONOSUPPORT:
                return None
            raise

    def close(self) -> None:
        self._socket.close()

    def list(self) -> list[Policy]:
        """All that have our form. Raises `NetlinkError`."""
        found = map(xfrm.policy_in, self._socket.dump(xfrm.GET_POLICY, b""))
        return [policy for policy in found if policy is not None]

    def change(self, put: Sequence[Policy], gone: Sequence[Policy]) -> dict[Policy, NetlinkError]:
        """Return the refusals. Raises `NetlinkError`: then it is unknown what was done."""
        todo = [(policy, xfrm.put_policy(policy)) for policy in put]
        todo += [(policy, xfrm.delete_policy(policy)) for policy in gone]
        found: dict[Policy, NetlinkError] = {}
        while todo:
            some, todo = todo[:_MOST], todo[_MOST:]
            refused = self._socket.batch([message for _, message in some])
            found |= {some[position][0]: error for position, error in refused.items()}
        return {policy: error for policy, error in found.items() if error.errno != errno.ENOENT}

    def try_esp(self) -> NetlinkError | None:
        """Add a state and take it away; returns the refusal."""
        return self._socket.batch(tuple(xfrm.trial())).get(0)


def missing() -> str:
    """Say why the kernel cannot do ESP, empty if it can. Raises `OSError` where this process may not ask."""
    policies = Policies.open()
    if policies is None:
        return "it has no XFRM"
    with closing(policies):
        refused = policies.try_esp()
    if refused is None or refused.errno == errno.EEXIST:
        return ""
    if refused.errno == errno.EPERM:
        raise refused
    return refused.strerror or str(refused)


def present() -> list[Policy]:
    """All of our form in this namespace; flanneld's are the same."""
    policies = Policies.open()
    if policies is None:
        return []
    with closing(policies):
        return policies.list()


def remove(networks: Callable[[], Iterable[Net]]) -> bool:
    """Remove those of our form within `networks` from this namespace; False if there were none.

    `networks` is asked only where there are policies of our form.
    """
    policies = Policies.open()
    if policies is None:
        return False
    with closing(policies):
        found = policies.list()
        if found:
            ours = Ownership(devices=frozenset({DEVICE}), networks=tuple(networks()))
            found = [policy for policy in found if policy.is_within(ours)]
            policies.change((), found)
    return bool(found)


class PoliciesPlane(ThreadPlane):
    """Policies of the form that upstream and we give them, in this namespace."""

    kinds = frozenset({"policy"})
    sweep = 10.0

    def __init__(self, _place: Place) -> None:
        self._policies = Policies.open()

    def close(self) -> None:
        """Leave the policies as they are: packets go on, encrypted."""
        if self._policies is not None:
            self._policies.close()

    def _look(self, _known: Objects, /) -> dict[Key, Object]:
        found = [] if self._policies is None else self._policies.list()
        self.counts = {"policies": len(found)}
        return {policy.key: policy for policy in found}

    def _apply(self, steps: Sequence[Step]) -> list[Failure]:
        """Put and remove policies in one go."""
        if self._policies is None:
            return []
        of = {step.object: step for step in steps if isinstance(step.object, Policy)}
        put = [policy for policy, step in of.items() if isinstance(step, Put)]
        gone = [policy for policy, step in of.items() if not isinstance(step, Put)]
        try:
            refused = self._policies.change(put, gone)
        except OSError as error:
            return [failed(step, error) for step in steps]
        return [failed(of[policy], error) for policy, error in refused.items()]
