"""Random walks through states in a real kernel: after each diff is applied, a look finds what is wanted.

The seed is printed, and another one each time; set WEFT_SEED to repeat a run.
"""

import os
import random
from ipaddress import ip_address, ip_network

import pytest

from tests.support.netns import Netns
from weft.desired.tunnels.vxlan import VxlanLink
from weft.kernel.rtnetlink.apply import apply
from weft.kernel.rtnetlink.observe import observe
from weft.model.kernel.objects import Address, FdbEntry, Key, Neighbour, Object, Route, Sysctl
from weft.model.net import Ip, Mac
from weft.plan.diff import diff

DEVICES = {"flannel.1": VxlanLink, "flannel-v6.1": VxlanLink}
SYSCTLS = tuple(f"net/ipv6/conf/{name}/accept_ra" for name in DEVICES)
UNDERLAY = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd00::1", "fd00::2")}
STEPS = 25


def walking(walk: int) -> random.Random:
    seed = int(os.environ.get("WEFT_SEED") or random.randrange(1 << 32))
    print(f"WEFT_SEED={seed}")
    return random.Random(f"{seed} {walk}")


def prepare(netns: Netns) -> None:
    for name in ("eth0", "eth1"):
        netns.bridge(name)
    eth0 = netns.rtnl.link("eth0")
    assert eth0 is not None
    for family, length in ((4, 24), (6, 64)):
        for text in UNDERLAY[family]:
            netns.rtnl.add_address(eth0.index, ip_address(text), length)


def random_state(chance: random.Random) -> dict[Key, Object]:
    """A state that a daemon could want: perhaps a VTEP of each family, and peers behind it or next to us."""
    state: list[Object] = []
    for family, dev in zip((4, 6), DEVICES, strict=True):
        state += _family(chance, family, dev)
    return {thing.key: thing for thing in state}


def _family(chance: random.Random, family: int, dev: str) -> list[Object]:
    state: list[Object] = []
    tunnel = chance.random() < 0.85
    if tunnel:
        state.append(
            VxlanLink(
                name=dev,
                vni=chance.choice((1, 1, 1, 7)) + family,
                port=chance.choice((8472, 8472, 8472, 4789)),
                local=ip_address(chance.choice(UNDERLAY[family][:1] * 3 + UNDERLAY[family][1:])),
                parent=chance.choice((2, 2, 2, 3)),
                mac=mac(chance.randrange(2)),
                mtu=chance.choice((1400, 1430)),
                learning=chance.random() < 0.2,
                gbp=chance.random() < 0.1,
            )
        )
        subnets = chance.sample(range(200, 203), chance.choice((1, 1, 1, 2, 0)))
        length = 32 if family == 4 else 128
        state += [Address(dev=dev, ip=base(family, subnet), prefixlen=length) for subnet in subnets]
        if chance.random() < 0.5:
            state.append(Sysctl(name=f"net/ipv6/conf/{dev}/accept_ra", value="0"))
    for peer in chance.sample(range(12), chance.randrange(8)):
        state += _peer(chance, family, dev if tunnel else "", peer)
    if chance.random() < 0.3:
        priority = chance.choice((0, 2**31 - 1))
        state.append(
            Route(dst=subnet_of(family, 250), blackhole=True, priority=priority, table=chance.choice((254, 1000)))
        )
    return state


def _peer(chance: random.Random, family: int, dev: str, peer: int) -> list[Object]:
    gateway, subnet = base(family, peer), subnet_of(family, peer)
    if not dev or chance.random() < 0.2:
        underlay = ip_address("10.0.0.77" if family == 4 else "fd00::77")
        return [Route(dst=subnet, via=chance.choice((underlay, underlay + 1)), dev="eth0")]
    its_mac = mac(100 + peer + chance.choice((0, 0, 0, 50)))
    remote = ip_address("10.0.1.0" if family == 4 else "fd00::1:0") + chance.randrange(3)
    return [
        Neighbour(dev=dev, ip=gateway, mac=its_mac),
        FdbEntry(dev=dev, mac=its_mac, remote=remote),
        Route(dst=subnet, via=gateway, dev=dev, onlink=True),
    ]


def base(family: int, number: int) -> Ip:
    return ip_address("10.244.0.0") + number * 256 if family == 4 else ip_address("fd99::") + (number << 64)


def subnet_of(family: int, number: int):
    return ip_network(f"{base(family, number)}/{24 if family == 4 else 64}")


def mac(number: int) -> Mac:
    return Mac(bytes((2, 0, 0, 0, number >> 8, number & 255)))


def settings(state: dict[Key, Object]) -> dict[Key, Object]:
    return {key: thing for key, thing in state.items() if isinstance(thing, Sysctl)}


def look(netns: Netns, want: dict[Key, Object]) -> dict[Key, Object]:
    """What is ours; a setting that nobody wants has no state to compare."""
    sysctls = [name for name in SYSCTLS if ("sysctl", name) in want]
    return dict(netns.call(lambda: observe(netns.rtnl, devices=DEVICES, sysctls=sysctls)).ours)


def settle(netns: Netns, want: dict[Key, Object]) -> None:
    """Diff and apply until there is nothing to do: two rounds at most, as a new MAC drops the neighbours."""
    for _ in range(2):
        steps = diff(want, look(netns, want))
        if not steps:
            return
        failures = netns.call(lambda steps=steps: apply(netns.rtnl, steps))
        assert failures == []


@pytest.mark.spec("flannel.md §6.2/peer-changed")
@pytest.mark.parametrize("walk", range(4))
def test_a_look_finds_what_was_applied(netns: Netns, walk: int) -> None:
    chance = walking(walk)
    prepare(netns)
    for _ in range(STEPS):
        want = random_state(chance)
        settle(netns, want)
        assert look(netns, want) == want
    settle(netns, {})
    assert look(netns, {}) == {}
    assert [link.name for link in netns.rtnl.links()] == ["lo", "eth0", "eth1"]


MISCHIEF = (
    "ip link set {dev} down",
    "ip link set {dev} up",
    "ip link set {dev} address 02:00:00:00:77:77",
    "ip link set {dev} mtu 1300",
    "ip link set {dev} alias ''",
    "ip link set {dev} type vxlan learning",
    "ip link del {dev}",
    "ip link set {dev} alias weft:vtep name weird0",
    "ip addr flush dev {dev}",
    "ip -{family} route flush proto 165",
    "ip neigh flush dev {dev} nud permanent",
    "ip -{family} neigh replace {gateway} dev {dev} lladdr 02:00:00:00:88:88 nud reachable",
    "ip -{family} neigh replace {gateway} dev {dev} lladdr 02:00:00:00:88:88 nud permanent",
    "bridge fdb replace 02:00:00:00:00:65 dev {dev} dst {remote}",
    "bridge fdb replace 02:00:00:00:00:65 dev {dev} dst {remote} self permanent",
    "bridge fdb replace 02:00:00:00:00:65 dev {dev} dst {remote} self dynamic",
    "bridge fdb replace 02:00:00:00:00:65 dev {dev} dst {remote} self permanent extern_learn",
    "bridge fdb replace 02:00:00:00:00:65 dev {dev} dst {remote} port 99 self permanent",
    "bridge fdb append 00:00:00:00:00:00 dev {dev} dst {remote}",
    "bridge fdb del 02:00:00:00:00:65 dev {dev}",
    "ip -{family} route replace {subnet} via {underlay}",
    "ip -{family} route replace {subnet} via {underlay} proto 165",
    "ip -{family} route replace {subnet} nexthop via {underlay} nexthop via {other} proto 165",
    "ip -{family} route replace unreachable {subnet} proto 165",
    "ip -{family} route replace {subnet} via {gateway} dev {dev} onlink mtu 1000 proto 165",
    "ip -{family} route append {subnet} via {underlay} proto 165 metric 7",
    "ip -{family} addr add {stray} dev {dev}",
)


@pytest.mark.spec("flannel.md §6.2/reconciled")
@pytest.mark.parametrize("walk", range(4))
def test_whatever_someone_does_one_look_and_one_diff_mend_it(netns: Netns, walk: int) -> None:
    chance = walking(walk)
    prepare(netns)
    for _ in range(STEPS):
        want = random_state(chance)
        settle(netns, want)
        done = []
        for _ in range(chance.randrange(1, 4)):
            family = chance.choice((4, 6))
            command = chance.choice(MISCHIEF).format(
                family=family,
                dev=list(DEVICES)[family == 6],
                gateway=base(family, 1),
                subnet=subnet_of(family, 1),
                remote="10.0.0.99" if family == 4 else "fd00::99",
                underlay="10.0.0.55" if family == 4 else "fd00::55",
                other="10.0.0.56" if family == 4 else "fd00::56",
                stray="10.77.0.1/24" if family == 4 else "fd77::1/64",
            )
            done.append(command)
            netns.run(command, check=False)
        if netns.rtnl.link("weird0"):
            # A device of ours under another name is still ours by its alias.
            assert ("link", "weird0") in look(netns, want), done
        settle(netns, want)
        assert look(netns, want) == want, done
