"""ADD, DEL, CHECK and GC in any order, with namespaces lost or exchanged: nothing is left, nobody is harmed."""

import os
import random
import time

import pytest

from tests.kernel.anyorder import (
    NETWORK,
    PLUGINS,
    add,
    chain,
    check,
    config,
    config_of,
    delete,
    has_nothing,
    lose,
    ports,
    seen,
)
from weft.cni.sdk.startup import CALLED

NS_OF_A_TICK = 20_000_000  # by which a file may seem older than it is


def collect(site, plugin, valid):
    listed = [{"containerID": id_, "ifname": "eth0"} for id_ in valid]
    for conf in chain(site, plugin):
        more = {"cni.dev/valid-attachments": listed}
        answer = site.call(conf["type"], "GC", {**conf, **more}, id_="", ifname="", netns="")
        assert answer.exit == 0, answer


@pytest.mark.parametrize("plugin", PLUGINS)
def test_add_after_the_namespace_was_lost(site, make_losable, plugin):
    first = make_losable()
    assert add(site, plugin, first, "c1").exit == 0
    lose(site, first)
    pod = make_losable()
    answer = add(site, plugin, pod, "c1")
    assert answer.exit == 0, answer
    assert len(site.reservations(NETWORK)) == 1
    check(site, plugin, pod, "c1", result=answer.json, port=8080)
    delete(site, plugin, "c1", pod=pod)
    assert has_nothing(site)


def test_add_after_the_namespace_was_lost_and_not_waited_for(site, make_losable):
    """The kernel takes a namespace down a moment after its name has gone."""
    first = make_losable()
    assert add(site, "bridge", first, "c1").exit == 0
    first.close()
    assert add(site, "bridge", make_losable(), "c1").exit == 0
    assert len(site.reservations(NETWORK)) == 1


def test_add_after_a_reboot(site, make_losable):
    first = make_losable()
    assert add(site, "bridge", first, "c1").exit == 0
    first.close()
    site.reboot()
    assert add(site, "bridge", make_losable(), "c1").exit == 0
    assert len(site.reservations(NETWORK)) == 1


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("part", range(3))
def test_an_add_that_is_made_again_after_its_server_died_begins_with_what_it_had_made(site, make_losable, plugin, part):
    """Its client says when it was called first: what is older is not this call's, and stays."""
    pod = make_losable()

    def one(conf, previous, called=None):
        more = {"runtimeConfig": ports(8080)} if conf["type"] == "portmap" else {}
        extra = {CALLED: str(called)} if called else {}
        return site.call(conf["type"], "ADD", {**conf, **previous, **more}, container=pod, id_="c1", extra=extra)

    *before, last = chain(site, plugin)[: part + 1]
    previous = {}
    for conf in before:
        previous = {"prevResult": one(conf, previous).json}
    called = time.time_ns() - NS_OF_A_TICK
    assert one(last, previous).exit == 0
    if not before:
        whole = seen(site)
        assert "already" in one(last, previous, called=time.time_ns() + 10**9).msg
        assert seen(site) == whole
    again = one(last, previous, called=called)
    assert again.exit == 0, again
    assert len(site.reservations(NETWORK)) == 1
    delete(site, plugin, "c1", pod=pod)
    assert has_nothing(site)


@pytest.mark.parametrize("plugin", [*PLUGINS, "flannel"])
def test_an_add_that_is_made_again_leaves_what_another_program_has_made(site, make_losable, plugin):
    pod = make_losable()
    assert site.via("debian")("bridge", "ADD", config(site, cniVersion="1.0.0", ipMasq=False), container=pod).exit == 0
    before = seen(site)
    again = {CALLED: str(time.time_ns() - 10**9)}
    refused = site.call(plugin, "ADD", config_of(site, plugin), container=pod, extra=again)
    assert "already exists" in refused.msg
    assert pod.rtnl.link("eth0").up
    assert seen(site) == before


@pytest.mark.parametrize("own", [True, False], ids=["made", "there before"])
def test_an_add_that_is_made_again_ends_what_a_delegate_of_others_has_made(site, make_losable, own):
    pod = make_losable()
    conf = {**config_of(site, "flannel"), "delegate": {"type": "theirs"}}
    foreign = site.foreign("ptp")
    called = time.time_ns() - NS_OF_A_TICK
    if not own:
        pod.run("ip link add eth0 type veth peer name x0")
    before = pod.json("ip -j link show")
    assert site.call("flannel", "ADD", conf, container=pod, id_="c1", extra=foreign).exit == (0 if own else 1)
    again = site.call("flannel", "ADD", conf, container=pod, id_="c1", extra={**foreign, CALLED: str(called)})
    assert again.exit == (0 if own else 1), again
    assert own or pod.json("ip -j link show") == before
    assert len(site.reservations(NETWORK)) == own
    assert len([link for link in site.host.rtnl.links() if link.kind == "veth"]) == own


def test_an_add_that_is_made_again_leaves_what_an_earlier_one_has_made(site, make_losable):
    """A repeated ADD fails before its delegate runs, puts the first one's record back, and its server dies."""
    pod = make_losable()
    conf = {**config_of(site, "flannel"), "delegate": {"type": "theirs"}}
    foreign = site.foreign("ptp")
    assert site.call("flannel", "ADD", conf, container=pod, id_="c1", extra=foreign).exit == 0
    mac = pod.rtnl.link("eth0").mac
    time.sleep(2 * NS_OF_A_TICK / 10**9)
    called = time.time_ns() - NS_OF_A_TICK
    missing = site.call("flannel", "ADD", conf, container=pod, id_="c1")
    assert "theirs" in missing.msg
    again = site.call("flannel", "ADD", conf, container=pod, id_="c1", extra={**foreign, CALLED: str(called)})
    assert again.exit == 1
    assert pod.rtnl.link("eth0").mac == mac
    assert len(site.reservations(NETWORK)) == 1
    assert site.call("flannel", "DEL", conf, container=pod, id_="c1", extra=foreign).exit == 0
    assert not site.reservations(NETWORK)


def test_an_add_of_host_local_that_is_made_again_leaves_the_address_of_an_earlier_one(site, make_losable):
    """A repeated ADD is refused, and its server dies before it answers."""
    pod, conf = make_losable(), {**config(site), "type": "host-local"}
    assert site.call("host-local", "ADD", conf, container=pod, id_="c1").exit == 0
    before = seen(site)
    time.sleep(2 * NS_OF_A_TICK / 10**9)
    called = time.time_ns() - NS_OF_A_TICK
    for extra in ({}, {CALLED: str(called)}):
        answer = site.call("host-local", "ADD", conf, container=pod, id_="c1", extra=extra)
        assert answer.exit == 1, (extra, answer)
    assert seen(site) == before


class DiedError(BaseException):
    """A signal has ended the server: no handler of errors puts anything back."""


class Dying:
    """The records of a server that dies when it has written one."""

    def __init__(self, state):
        self._state, self._dead = state, False

    def __getattr__(self, name):
        if self._dead:
            raise DiedError
        return getattr(self._state, name)

    def replace(self, *args, **kwargs):
        self._state.replace(*args, **kwargs)
        self._dead = True
        raise DiedError


def die_in_add(site, conf, **more):
    """ADD, whose server dies behind its first record. Returns when it was called, as the client says it."""
    time.sleep(2 * NS_OF_A_TICK / 10**9)
    called = time.time_ns() - NS_OF_A_TICK

    def dying(host):
        host.state = Dying(host.state)
        return host

    site.wrap, whole = dying, site.wrap
    with pytest.raises(DiedError):
        site.via("here")(conf["type"], "ADD", conf, **more)
    site.wrap = whole
    return {CALLED: str(called)}


def test_a_server_that_dies_in_a_repeated_add_of_host_local_does_not_cost_a_pod_its_address(site, make_losable):
    pod, conf = make_losable(), {**config(site), "type": "host-local"}
    assert site.call("host-local", "ADD", conf, container=pod, id_="c1").exit == 0
    before = site.reservations(NETWORK)
    wants = {"container": pod, "id_": "c1", "args": "IP=10.1.2.77"}
    extra = die_in_add(site, conf, **wants)
    site.call("host-local", "ADD", conf, **wants, extra=extra)
    assert before.items() <= site.reservations(NETWORK).items()
    delete(site, "bridge", "c1", pod=pod)
    assert not site.reservations(NETWORK)


def test_a_server_that_dies_in_a_second_tuning_does_not_undo_the_first(site, make_losable):
    pod, conf = make_losable(), {"cniVersion": "1.1.0", "name": NETWORK, "type": "tuning"}
    conf["dataDir"] = str(site.directory / "tuning")
    pod.run("ip link add eth0 mtu 1500 type veth peer name x0")
    told = {"container": pod, "id_": "c1"}
    first = site.call("tuning", "ADD", {**conf, "mtu": 1400, "prevResult": {"cniVersion": "1.1.0"}}, **told)
    second = {**conf, "txQLen": 777, "prevResult": first.json}
    extra = die_in_add(site, second, **told)
    assert site.call("tuning", "ADD", second, **told, extra=extra).exit == 0
    tuned = pod.rtnl.link("eth0")
    assert (tuned.mtu, tuned.queue_length) == (1400, 777)
    assert site.call("tuning", "DEL", second, **told).exit == 0
    assert pod.rtnl.link("eth0").mtu == 1500
    assert has_nothing(site)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_an_add_that_is_made_again_takes_a_pair_that_nobody_wrote_down(site, make_losable, plugin):
    """Its server died between the two."""
    pod = make_losable()
    pod.rtnl.add_veth("eth0", peer="veth01234567", peer_netns_fd=site.host.fd, mtu=1500)
    again = {CALLED: str(time.time_ns() - 10**9)}
    answer = site.call(plugin, "ADD", config(site, plugin), container=pod, extra=again)
    assert answer.exit == 0, answer
    assert site.call(plugin, "DEL", config(site, plugin), container=pod).exit == 0
    assert has_nothing(site)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("where", ["in the same namespace", "in another one"])
def test_a_refused_add_changes_nothing(site, make_losable, plugin, where):
    pod = make_losable()
    result = add(site, plugin, pod, "c1").result
    before = seen(site)
    other = pod if where == "in the same namespace" else make_losable()
    refused = add(site, plugin, other, "c1", port=9090)
    assert refused.exit == 1
    assert "already" in refused.msg
    assert seen(site) == before
    assert {link.name for link in other.rtnl.links()} == ({"lo", "eth0"} if other is pod else {"lo"})
    check(site, plugin, pod, "c1", result=result, port=8080)


def test_a_second_portmap_that_is_refused_leaves_the_first_ones_ports(site, make_losable):
    one, two = make_losable(), make_losable()
    assert add(site, "bridge", one, "c1", port=8080).exit == 0
    result = add(site, "bridge", two, "c2", port=8081).result
    before = seen(site)
    conf = {
        "cniVersion": "1.1.0",
        "name": NETWORK,
        "type": "portmap",
        "prevResult": result,
        "runtimeConfig": ports(8080),
    }
    refused = site.call("portmap", "ADD", conf, container=two, id_="c2")
    assert "taken by" in refused.msg
    assert seen(site) == before
    check(site, "bridge", two, "c2", result=result, port=8081)


class Life:
    """One container of the property below: what it has now, by what its runtime was told."""

    def __init__(self, number):
        self.id, self.port = f"c{number}", 8000 + number
        self.pod = None  # the namespace that the runtime knows
        self.result = None  # of an attachment that is there


class Runtime:
    """What runtimes, nodes and administrators do, one thing at a time, and what must hold after each."""

    def __init__(self, site, make_losable, choice):
        self.site, self.make_losable, self.choice = site, make_losable, choice
        self.lives = [Life(number) for number in range(3)]
        self.trail = []

    def turn(self):
        life = self.choice.choice(self.lives)
        acts = (self.add, self.add, self.add_elsewhere, self.delete, self.delete_late, self.lose, self.collect)
        act = self.choice.choice((*acts, self.restart, self.take_port))
        self.trail.append(f"{act.__name__} {life.id}")
        act(life)
        for one in self.living():
            check(self.site, "bridge", one.pod, one.id, result=one.result, port=one.port)

    def living(self):
        return [one for one in self.lives if one.result]

    def add(self, life):
        before = seen(self.site)
        life.pod = life.pod or self.make_losable()
        answer = add(self.site, "bridge", life.pod, life.id, life.port)
        if life.result:
            assert answer.exit == 1
            assert seen(self.site) == before
        else:
            life.result = answer.result

    def add_elsewhere(self, life):
        if life.result:
            before = seen(self.site)
            assert add(self.site, "bridge", self.make_losable(), life.id, life.port).exit == 1
            assert seen(self.site) == before

    def take_port(self, life):
        """Its runtime sends no DEL after an ADD that has failed."""
        if self.living() and not life.result:
            holder = self.choice.choice(self.living())
            pod = self.make_losable()
            assert add(self.site, "bridge", pod, life.id, holder.port).exit == 1
            assert [link.name for link in pod.rtnl.links()] == ["lo"]

    def delete(self, life):
        delete(self.site, "bridge", life.id, pod=life.pod, result=self.choice.choice((life.result, None)))
        life.result = None

    def delete_late(self, life):
        if self.living() and not life.result:
            delete(self.site, "bridge", life.id, pod=self.choice.choice(self.living()).pod)

    def lose(self, life):
        if life.result:
            lose(self.site, life.pod)
        life.pod = life.result = None

    def collect(self, _):
        collect(self.site, "bridge", [one.id for one in self.living()])

    def restart(self, _):
        self.site.restart()

    def end(self):
        if self.choice.random() < 0.5:
            collect(self.site, "bridge", [])
        else:
            for life in self.lives:
                delete(self.site, "bridge", life.id, pod=life.pod)
        assert has_nothing(self.site), seen(self.site)


@pytest.mark.parametrize("number", range(6))
def test_any_order(site, make_losable, number):
    seed = f"{os.environ.get('WEFT_SEED') or random.randrange(1 << 32)}:{number}"
    runtime = Runtime(site, make_losable, random.Random(seed))
    try:
        for _ in range(25):
            runtime.turn()
        runtime.end()
    except BaseException:
        print(f"WEFT_SEED={seed}: {', '.join(runtime.trail)}")
        raise
