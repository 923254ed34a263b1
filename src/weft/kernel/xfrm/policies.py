"""The kernel's IPsec policies in this thread's namespace, as far as they have the form of ours and upstream's."""

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Final, Self

from weft.kernel.rtnetlink.netlink import NetlinkError, NetlinkSocket
from weft.kernel.xfrm import messages
from weft.model.kernel.ipsec import DEVICE, Policy
from weft.model.kernel.ownership import Ownership
from weft.model.net import Net

_MOST: Final = 64  # policies in one send, for which a socket has room


class Policies:
    """A socket of NETLINK_XFRM. One thread at a time."""

    def __init__(self, opened: NetlinkSocket) -> None:
        self._socket = opened

    @classmethod
    def open(cls) -> Self | None:
        """None where the kernel has no XFRM at all."""
        try:
            return cls(NetlinkSocket.open(messages.NETLINK_XFRM))
        except OSError as error:
            if error.errno == errno.EPROTONOSUPPORT:
                return None
            raise

    def close(self) -> None:
        self._socket.close()

    def list(self) -> list[Policy]:
        """All that have our form. Raises `NetlinkError`."""
        found = map(messages.policy_in, self._socket.dump(messages.GET_POLICY, b""))
        return [policy for policy in found if policy is not None]

    def change(self, put: Sequence[Policy], gone: Sequence[Policy]) -> dict[Policy, NetlinkError]:
        """Return the refusals. Raises `NetlinkError`: then it is unknown what was done."""
        todo = [(policy, messages.put_policy(policy)) for policy in put]
        todo += [(policy, messages.delete_policy(policy)) for policy in gone]
        found: dict[Policy, NetlinkError] = {}
        while todo:
            some, todo = todo[:_MOST], todo[_MOST:]
            refused = self._socket.batch([message for _, message in some])
            found |= {some[position][0]: error for position, error in refused.items()}
        return {policy: error for policy, error in found.items() if error.errno != errno.ENOENT}

    def try_esp(self) -> NetlinkError | None:
        """Add a state and take it away; returns the refusal."""
        return self._socket.batch(tuple(messages.trial())).get(0)


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
