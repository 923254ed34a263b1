"""A large cluster's policies on one node, in its kernel as weftd puts them there, without the daemon around it.

250 pods are attached here, of which policies know alone, and 5,000 elsewhere, each in 20 of the 1,000 sets that the
first 1,000 policies ask. Of these each pod here has four; more policies select pods that are not here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from typing import Final, TypeVar

from tests.support.netns import Netns
from weft.daemon.planes.plane import Keeper
from weft.desired.policy.decide import PolicyDecider
from weft.desired.policy.inputs import Attached, PolicySettings
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.kernel.netfilter.policies import PolicyTables
from weft.kernel.tools import Tools
from weft.model.kernel.objects import Key
from weft.model.policy import (
    EVERYTHING,
    NAME_LABEL,
    Namespace,
    Pod,
    PodPeer,
    Policy,
    Port,
    Requirement,
    Rule,
    Selector,
    Thing,
)

SUBNET: Final = IPv4Network("10.244.1.0/24")
SETTINGS: Final = PolicySettings(
    mode="enforce", networks=(IPv4Network("10.244.0.0/16"),), subnets=(SUBNET,), subnet_lens={4: 24}
)
HERE: Final = 250
ELSEWHERE: Final = 5000
SETS: Final = 1000
MEMBERSHIPS: Final = 20
MANY: Final = 1000  # pods in the namespace `many`
PORT: Final = 8050
# Of the policies of the pod in the middle, only the last has the sender among its peers.
TARGET: Final = HERE // 2
SENDER: Final = TARGET + SETS - HERE

T = TypeVar("T")
Work = Callable[["PolicyDecider", Keeper], Awaitable[T]]


def ip_here(number: int) -> IPv4Address:
    return SUBNET[2 + number]


def ip_elsewhere(number: int) -> IPv4Address:
    return IPv4Address("10.244.2.2") + (number // 200 << 8) + number % 200


def far(number: int, *, name: str = "far") -> Pod:
    labels = {f"s{(number + 7 * place) % SETS}": "x" for place in range(MEMBERSHIPS)}
    return Pod(namespace="shop", name=f"{name}{number}", labels=labels, ips=(ip_elsewhere(number),))


def here(number: int, *, like: int | None = None) -> tuple[Pod, Attached]:
    """A pod, with the policies of another one if it is `like` that, and its attachment."""
    labels = {**far(number).labels, "app": f"a{number if like is None else like}"}
    pod = Pod(namespace="shop", name=f"here{number}", labels=labels)
    return pod, Attached(pod=f"shop/here{number}", ips=(ip_here(number),), port=f"veth{number}", link="cni0")


def policy(number: int) -> Policy:
    subject = f"a{number % HERE}" if number < SETS else "none"
    peers = (PodPeer(pods=Selector((Requirement(f"s{number % SETS}", "Exists"),))),)
    ports = (Port(protocol="udp", first=8000, last=8100), *((Port(),) if number == SENDER else ()))
    rule = Rule(peers=peers, ports=ports)
    return Policy(namespace="shop", name=f"p{number:05}", pods=_with("app", subject), ingress=(rule,))


def of_all(last_port: int) -> Policy:
    """One that selects all pods here."""
    rule = Rule(ports=(Port(first=9000, last=last_port),))
    return Policy(namespace="shop", name="of-all", pods=EVERYTHING, ingress=(rule,))


def by_team() -> Policy:
    rule = Rule(peers=(PodPeer(namespaces=_with("team", "x")),))
    return Policy(namespace="shop", name="by-team", pods=_with("app", "a0"), ingress=(rule,))


def namespace(name: str, **labels: str) -> Namespace:
    return Namespace(name=name, labels={NAME_LABEL: name, **labels})


def things(policies: int) -> Iterator[Thing]:
    yield from (namespace("shop"), namespace("many"))
    yield from map(policy, range(policies))
    yield from (here(number)[0] for number in range(HERE - 1))
    yield from map(far, range(ELSEWHERE))


def crowd() -> Iterator[Thing]:
    """Pods of the namespace `many`, and the policy that may mean it."""
    yield by_team()
    for number in range(MANY):
        yield Pod(namespace="many", name=f"m{number}", labels={}, ips=(ip_elsewhere(ELSEWHERE + 200 + number),))


def enforced(netns: Netns, policies: int, work: Work[T]) -> T:
    """Put it all into the namespace's kernel, do the work, and leave it there."""

    async def run() -> T:
        with closing(NfSocket.open()) as nf:
            decider = PolicyDecider(SETTINGS)
            decider.change(things(policies))
            for number in range(HERE - 1):
                decider.attached(f"here{number}", here(number)[1])
            keeper = Keeper(PolicyTables(nf, Tools()), decider, may_remove=lambda: True, clock=time.monotonic)
            keeper.look_again()
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(keeper.run())
                await keeper.idle()
                if keeper.tally.failing:
                    raise RuntimeError(f"not in the kernel: {keeper.tally.failing}")
                try:
                    return await work(decider, keeper)
                finally:
                    keeping.cancel()

    return netns.call(lambda: asyncio.run(run()))


async def took(keeper: Keeper, keys: Callable[[], set[Key]]) -> float:
    """Milliseconds until what `keys` decides is in the kernel."""
    start = time.perf_counter()
    keeper.decided(keys())
    await keeper.idle()
    return (time.perf_counter() - start) * 1e3


def _with(label: str, value: str) -> Selector:
    return Selector((Requirement(label, "In", (value,)),))
