"""The lease store on the nodes of Kubernetes (`weft.cluster.store`).

Which subnet is this node's says its Node object; what it publishes are annotations of that. The network configuration
is a file, which a ConfigMap is mounted as. Clock and chance are given.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from weft.beside import files
from weft.cluster.kube.access import Access
from weft.cluster.kube.client import Client
from weft.cluster.kube.own import KubeTenure
from weft.cluster.kube.problems import NotFoundError, reading
from weft.cluster.kube.watch import KubeDirectory
from weft.cluster.store import Store
from weft.config.kubernetes import Surroundings
from weft.model.errors import Problem, Unavailable
from weft.wire import kube

if TYPE_CHECKING:
    from weft.cluster.policysource import PolicySource

_FILE_SECONDS: Final = 2.0  # between two looks; kubelet takes a minute to bring a change of a ConfigMap
_POLICIES: Final = "/apis/networking.k8s.io/v1/networkpolicies"


def open_kube(
    access: Access,
    surroundings: Surroundings,
    *,
    prefix: str,
    net_conf: Path,
    tells: bool,
    now: Callable[[], float],
    chance: Random,
) -> Store:
    """The nodes of a cluster as leases. `now` gives seconds of a clock that only goes forward.

    `prefix` begins the names of annotations; `net_conf` is the file of the network configuration; `tells` has the
    node's condition NetworkUnavailable set. What is asked raises STORE-002 and API-001 when the API refuses us.
    """
    client, events = Client(access), Client(access)
    tenure = KubeTenure(client, surroundings, prefix, events=events, tells=tells, timing=access.timing)

    def close() -> None:
        client.close()
        events.close()

    def policy_source() -> "PolicySource":
        from weft.cluster.kube.policies import KubePolicies  # nothing of it where policies are off

        return KubePolicies(client, tenure.name, now=now, jitter=chance.random)

    return Store(
        settings=KubeSettings(client, net_conf),
        tenure=tenure,
        directory=KubeDirectory(client, prefix, tenure, timing=access.timing, now=now, jitter=chance.random),
        tallies=client.tallies,
        close=close,
        policy_source=policy_source,
    )


class KubeSettings:
    chooses = False  # a node's podCIDR is given
    is_mesh = False

    def __init__(self, client: Client, net_conf: Path) -> None:
        self.source = str(net_conf)
        self._client = client
        self._net_conf = net_conf

    async def next_net_conf(self, known: str) -> str:
        while (text := await self.net_conf()) == known:  # noqa: ASYNC110 - a file gives no sign
            await asyncio.sleep(_FILE_SECONDS)
        return text

    async def net_conf(self) -> str:
        """Raises `Unavailable`: CONF-002 without a file, STORE-001 while disks hang."""
        try:
            text = await files.read_small(self._net_conf)
        except OSError as error:
            seen = f"cannot be read: {files.why(error)}"
            if files.may_pass(error):
                raise Unavailable(Problem(code="STORE-001", where=self.source, seen=seen)) from None
            hint = "Mount the ConfigMap kube-flannel-cfg there, or give --net-config-path"
            raise Unavailable(
                Problem(code="CONF-002", where=self.source, seen=seen, expected="a network configuration", hint=hint)
            ) from None
        return text.decode(errors="replace")

    async def policies(self) -> int:
        """In all namespaces. Raises `Unavailable` without the right to list them."""
        try:
            body = await self._client.get(_POLICIES, limit="1")
        except NotFoundError:  # an API that does not serve them has none
            return 0
        with reading(self._client.where):
            return kube.read_count(body)
