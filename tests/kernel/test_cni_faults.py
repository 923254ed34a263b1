"""ADD succeeds whole or leaves nothing: every call that a plugin makes fails once, one after the other."""

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.support.cni.site import REFERENCE
from weft.cni.host.host import ClientGone, Container
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.wire.cni import Ran

Due = Callable[[str], bool]


def numbered(number: int) -> Due:
    """The call of a number."""
    calls = count(1)
    return lambda _: next(calls) == number


def untried(tried: set[tuple[str, int]]) -> Due:
    """The first call that is not in `tried`, by its name and which of that name it is; it is put there.

    A turn need not make the same calls as the one before: what was read then may be known.
    """
    seen: Counter[str] = Counter()

    def due(name: str) -> bool:
        seen[name] += 1
        new = (name, seen[name]) not in tried
        tried.add((name, seen[name]))
        return new

    return due


class Fault:
    """Fails the first call that is due, once, or kills the process then. `name` says which it was."""

    def __init__(self, due: Due, *, after: bool, kill: bool = False) -> None:
        self._due = due
        self._after = after
        self._kill = kill
        self.name = ""

    def through(self, target: Any, prefix: str) -> "Proxy":
        return Proxy(self, target, prefix)

    def call(self, name: str, method: Callable, args: tuple, kwargs: dict) -> Any:
        if self.name or not self._due(name):
            return method(*args, **kwargs)
        self.name = name
        if self._after:
            method(*args, **kwargs)
        if self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        error = NetlinkError if "rtnl" in name or "netfilter" in name else OSError
        raise error(errno.EIO, "injected")


class Proxy:
    """An object whose every method may fail."""

    def __init__(self, fault: Fault, target: Any, prefix: str) -> None:
        self._fault, self._target, self._prefix = fault, target, prefix

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        return lambda *args, **kwargs: self._fault.call(f"{self._prefix}.{name}", method, args, kwargs)


class FaultyHost:
    """A host whose objects fail as told. `lock` and `link` of the undoing work again."""

    def __init__(self, host: Any, fault: Fault) -> None:
        self._host = host
        self.rtnl = fault.through(host.rtnl, "rtnl")
        self.sysctls = fault.through(host.sysctls, "sysctls")
        self.files = fault.through(host.files, "files")
        self.state = fault.through(host.state, "state")
        inner = host.container
        self.netfilter = fault.through(host.netfilter, "netfilter")
        self.container = None
        if inner is not None:  # the plugin does not work in the host's namespace alone
            self.container = Container(
                rtnl=fault.through(inner.rtnl, "container.rtnl"),  # type: ignore[arg-type]
                sysctls=fault.through(inner.sysctls, "container.sysctls"),  # type: ignore[arg-type]
                netns_fd=inner.netns_fd,
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def config(site, **more):
    ipam = {
        "type": "host-local",
        "dataDir": str(site.store),
        "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]],
        "routes": [{"dst": "10.0.0.0/8", "mtu": 1300}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "net",
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": ipam,
        **more,
    }


def leftovers(site, pod):
    state = site.directory / "state"
    return {
        "pod": {link["ifname"] for link in pod.json("ip -j link")} - {"lo"},
        "host": {link["ifname"] for link in site.host.json("ip -j link")} - {"lo", "cni0"},
        "addresses": set(site.reservations("net")) | set(site.reservations("cbr0")),
        "records": {path.name for path in state.rglob("*.json")},
        "state": {path.name for path in (site.directory / "flannel").glob("*")},
        "rules": {line.strip() for line in site.host.run("nft list ruleset").splitlines() if "c1" in line},
    }


NOTHING: dict[str, set[str]] = {kind: set() for kind in ("pod", "host", "addresses", "records", "state", "rules")}


def fail_everywhere(site, pod, plugin, conf, *, after):
    """Run ADD with each of its calls failing; return how many there were, and the names of those that failed it."""
    failed = set()
    tried: set[tuple[str, int]] = set()
    while True:
        fault = Fault(untried(tried), after=after)
        site.wrap = lambda host, fault=fault: FaultyHost(host, fault)
        answer = site.call(plugin, "ADD", conf, container=pod)
        site.wrap = lambda host: host
        if not fault.name:
            assert answer.exit == 0
            return len(tried), failed
        if answer.exit:
            failed.add(fault.name)
            assert leftovers(site, pod) == NOTHING, f"after {fault.name} had failed"
            assert answer.json["msg"]
        deleted = site.call(plugin, "DEL", conf, container=pod)
        assert deleted.exit == 0, (fault.name, deleted.json)
        assert leftovers(site, pod) == NOTHING, f"after {fault.name} had failed and DEL"
        site.host.run("ip link del cni0", check=False)  # so that each turn makes the same calls


@pytest.mark.spec("cni.md B18")
def test_bridge_leaves_nothing_when_a_call_is_refused(site, pod):
    calls, failed = fail_everywhere(site, pod, "bridge", config(site), after=False)
    assert calls > 30
    assert {"container.rtnl.add_veth", "files.write_new", "container.rtnl.batch", "rtnl.batch"} <= failed


@pytest.mark.spec("cni.md B18")
def test_bridge_leaves_nothing_when_a_call_works_and_its_answer_is_lost(site, pod):
    calls, failed = fail_everywhere(site, pod, "bridge", config(site), after=True)
    assert calls > 30
    assert {"files.rewrite", "container.rtnl.batch", "state.replace"} <= failed


def test_bridge_with_its_rarer_keys_leaves_nothing(site, pod):
    more = {"macspoofchk": True, "enabledad": True, "portIsolation": True, "ipMasq": True, "ipMasqBackend": "nftables"}
    calls, failed = fail_everywhere(site, pod, "bridge", config(site, **more), after=False)
    assert calls > 40
    assert {"container.rtnl.notices", "container.sysctls.write", "state.replace"} <= failed


@pytest.mark.parametrize("after", [False, True])
def test_ptp_leaves_nothing(site, pod, after):
    conf = config(site, type="ptp", ipMasq=True, ipMasqBackend="nftables")
    calls, failed = fail_everywhere(site, pod, "ptp", conf, after=after)
    assert calls > 24
    assert {"container.rtnl.add_veth", "files.write_new", "container.rtnl.batch", "rtnl.batch"} <= failed


def flannel_config(site, directory):
    env = directory / "subnet.env"
    env.write_text("FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n")
    return {
        "cniVersion": "0.3.1",
        "name": "cbr0",
        "type": "flannel",
        "subnetFile": str(env),
        "dataDir": str(site.directory / "flannel"),
        "delegate": {"isDefaultGateway": True},
        "ipam": {"dataDir": str(site.store)},
    }


def test_flannel_leaves_nothing_when_a_call_is_refused(site, pod, tmp_path):
    calls, failed = fail_everywhere(site, pod, "flannel", flannel_config(site, tmp_path), after=False)
    assert calls > 20
    assert "files.replace" in failed


LATER = {
    "portmap": {"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}},
    "portmap by nft": {
        "backend": "nftables",
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp"}]},
    },
    "tuning": {"mtu": 1300, "mac": "c2:11:22:33:44:55"},
    "firewall": {"backend": "nftables"},
    "sbr": {},
    "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 8_000_000},
    "loopback": {},
}


@pytest.mark.parametrize("first", ["bridge", "ptp", "flannel"])
@pytest.mark.parametrize("later", LATER)
def test_a_chain_that_fails_later_leaves_nothing_although_no_del_comes(site, pod, tmp_path, first, later):
    """The runtime's next call is the same ADD."""
    base = flannel_config(site, tmp_path) if first == "flannel" else config(site, type=first)
    base = {**base, "cniVersion": "1.0.0"}
    conf = {"cniVersion": "1.0.0", "name": base["name"], "dataDir": str(site.directory / "tuning"), **LATER[later]}
    tried: set[tuple[str, int]] = set()
    failed = 0
    while True:
        result = site.call(first, "ADD", base, container=pod).result
        fault = Fault(untried(tried), after=False)
        site.wrap = lambda host, fault=fault: FaultyHost(host, fault)
        answer = site.call(later.split()[0], "ADD", {**conf, "prevResult": result}, container=pod)
        site.wrap = lambda host: host
        if answer.exit:
            failed += 1
            assert leftovers(site, pod) == NOTHING, f"after {fault.name} had failed"
            assert list((site.directory / "tuning").glob("*")) == []
            continue
        for plugin, told in ((later.split()[0], conf), (first, base)):
            assert site.call(plugin, "DEL", {**told, "prevResult": result}, container=pod).exit == 0
        if not fault.name:
            break
    assert failed or later == "loopback"
    assert leftovers(site, pod) == NOTHING


def kill_everywhere(site, pod, command, conf):
    """Run flannel in a child that is killed at each of its calls; what the runtime does next must mend it all."""
    number = 0
    while True:
        number += 1

        def in_child(number=number) -> None:
            fault = Fault(numbered(number), after=False, kill=True)
            site.by, site.wrap = "here", lambda host: FaultyHost(host, fault)
            os._exit(0 if site.call("flannel", command, conf, container=pod).exit == 0 else 3)

        if command == "DEL":
            assert site.call("flannel", "ADD", conf, container=pod).exit == 0
        status = site.host.fork(in_child)
        assert status in (0, -signal.SIGKILL)
        site.restart()
        # As after any failed ADD, and as when no answer to DEL has come:
        assert site.call("flannel", "DEL", conf, container=pod).exit == 0
        assert leftovers(site, pod) == NOTHING, f"killed at call {number} of {command}"
        assert site.call("flannel", "ADD", conf, container=pod).exit == 0
        assert site.call("flannel", "DEL", conf, container=pod).exit == 0
        if status == 0:
            return number


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_killed_at_every_call_and_mended_by_del(site, pod, tmp_path, command):
    assert kill_everywhere(site, pod, command, flannel_config(site, tmp_path)) > 15


class Leaving:
    """A host whose client goes while it runs a delegate of a given verb."""

    def __init__(self, host: Any, verb: str) -> None:
        self._host, self._verb, self._gone = host, verb, False
        self.ran: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def delegate(self, name: str, command: str, env: dict, stdin: bytes) -> Ran | None:
        if self._gone or command == self._verb:
            self._gone = True
            raise ClientGone
        return self._host.delegate(name, command, env, stdin)


def test_what_a_del_could_not_have_done_the_next_del_does(site, pod, tmp_path):
    (tmp_path / "not-ours").symlink_to(f"{REFERENCE}/static")
    path = {"CNI_PATH": str(tmp_path)}
    ipam = {"type": "not-ours", "addresses": [{"address": "10.9.9.9/24"}]}
    conf = config(site, ipam=ipam, isDefaultGateway=False)
    assert site.call("bridge", "ADD", conf, container=pod, extra=path).exit == 0
    site.wrap = lambda host: Leaving(host, "DEL")
    assert site.call("bridge", "DEL", conf, container=pod, extra=path).code == 11
    debts = site.directory / "state" / "owed"
    assert len(list(debts.iterdir())) == 1
    site.wrap = lambda host: host
    assert site.call("bridge", "DEL", conf, container=pod, extra=path).exit == 0
    assert list(debts.iterdir()) == []


def test_gc_pays_debts_too(site, pod, tmp_path):
    (tmp_path / "not-ours").symlink_to(f"{REFERENCE}/static")
    path = {"CNI_PATH": str(tmp_path)}
    ipam = {"type": "not-ours", "addresses": [{"address": "10.9.9.9/24"}]}
    site.wrap = lambda host: Leaving(host, "ADD")
    assert site.call("bridge", "ADD", config(site, ipam=ipam, isDefaultGateway=False), container=pod, extra=path).exit
    site.wrap = lambda host: host
    conf = config(site, ipam=ipam, cniVersion="1.1.0") | {"cni.dev/valid-attachments": []}
    # The program itself knows no GC, and says so.
    assert site.call("bridge", "GC", conf, id_="", ifname="", netns="", extra=path).exit == 1
    assert list((site.directory / "state" / "owed").iterdir()) == []


def test_a_client_that_goes_leaves_nothing_but_a_debt_which_the_next_one_pays(site, pod, make_netns, tmp_path):
    (tmp_path / "not-ours").symlink_to(f"{REFERENCE}/static")
    path = {"CNI_PATH": str(tmp_path)}
    ipam = {"type": "not-ours", "addresses": [{"address": "10.9.9.9/24"}]}
    conf = config(site, ipam=ipam, isDefaultGateway=False)
    site.wrap = lambda host: Leaving(host, "ADD")
    answer = site.call("bridge", "ADD", conf, container=pod, extra=path)
    assert answer.code == 11
    debts = site.directory / "state" / "owed"
    assert len(list(debts.iterdir())) == 1
    assert leftovers(site, pod) | {"records": set()} == NOTHING
    site.wrap = lambda host: host
    assert site.call("bridge", "ADD", conf, container=make_netns(), id_="c2", extra=path).exit == 0
    assert list(debts.iterdir()) == []
