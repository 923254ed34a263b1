"""Each fault that a lab can have is named by the doctor, or put right by the daemon; a lab without one is well."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.lab import Lab, lab, weft
from tests.support.weftd import eventually
from weft.lab.fault import Fault
from weft.lab.faults import FAULTS

# Of whose ends the daemon keeps no count: it writes the file anew.
UNCOUNTED = {"subnet-file-gone"}
# Of each only this tells, when they come again and again: one repair is no fault of the node.
FOUGHT = {"address-lost", "mac-changed", "device-gone", "masquerade-lost"}
ONE_MOMENT = 5.5  # seconds, after which a repair counts as another
RULES = Path(__file__).parents[1] / "pure/diag/data"  # as these programs write them, and let pods through
HERE = [fault for fault in FAULTS if fault.backends != ("mesh",) and not fault.policies]
LASTING = [fault for fault in HERE if not fault.repaired and (fault.mends or fault.kills)]
FOR_GOOD = [fault for fault in HERE if not (fault.repaired or fault.mends or fault.kills)]
REPAIRED = [fault for fault in HERE if fault.repaired]
# Back end, family, kind of rules, and which program's rules are beside ours on node1: that has let in IPv4 alone.
HEALTHY = [
    "vxlan 4 iptables",
    "vxlan 4 nft",
    "vxlan 46 iptables",
    "vxlan 46 nft docker",
    "vxlan 6 iptables",
    "vxlan 6 nft",
    "vxlan 4 iptables docker",
    "vxlan 4 iptables ufw",
    "vxlan 4 nft firewalld",
    "host-gw 4 iptables docker",
    "host-gw 4 nft firewalld",
    "host-gw 46 nft",
    "host-gw 6 iptables",
    "udp 4 iptables ufw",
    "udp 46 nft",
    "wireguard 4 nft",
    "wireguard 46 iptables docker",
    "wireguard 6 nft",
    "alloc 4 iptables",
    "alloc 46 nft docker",
]


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2", "--pods", "1") as running:
        yield running


def findings(running: Lab, node: str = "node1") -> list[dict[str, str]]:
    ran = running.weft("exec", node, "--", "weft", "doctor", "-o", "json", check=False)
    assert ran.stdout, ran.stderr
    found: list[dict[str, str]] = json.loads(ran.stdout)["findings"]
    return found


def is_well(running: Lab) -> bool:
    """Tell whether nothing is found but what these tests themselves have others put right again and again."""
    return is_well_on(running, "node1") and is_well_on(running, "node2")


def is_well_on(running: Lab, node: str) -> bool:
    return not [each for each in findings(running, node) if each["check"] != "repairs"]


def repairs(running: Lab) -> dict[str, int]:
    loops = json.loads(running.run("node1", "weft", "status", "-o", "json"))["loops"].values()
    return {code: count for loop in loops for code, count in loop["repairs"].items()}


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.name)
def test_a_fault_that_stays_is_named(running: Lab, fault: Fault):
    seen_by = "node2" if fault.elsewhere else "node1"
    running.weft("break", "node1", fault.name)
    try:
        found = eventually(
            lambda: [each for each in findings(running, seen_by) if each["code"] == fault.code], seconds=30
        )
        assert all(each["seen"] for each in found)
    finally:
        running.weft("break", "node1", fault.name, "--mend")
    eventually(lambda: is_well(running), seconds=30)


@pytest.mark.parametrize("fault", REPAIRED, ids=lambda fault: fault.name)
def test_a_fault_that_the_daemon_puts_right(running: Lab, fault: Fault):
    before = repairs(running).get(fault.code, 0)
    running.weft("break", "node1", fault.name)
    eventually(lambda: is_well(running), seconds=30)
    eventually(lambda: fault.name in UNCOUNTED or repairs(running).get(fault.code, 0) > before, seconds=30)


POD_DOES = [  # what breaks its link, what mends it, and what is seen
    ("ip link set eth0 down", "ip link set eth0 up; ip route add default via $gateway", "it is down"),
    (
        "ip address del $own/24 dev eth0",
        "ip address add $own/24 dev eth0; ip route add default via $gateway",
        "it has no address",
    ),
    ("ip address add $taken/32 dev eth0", "ip address del $taken/32 dev eth0", "which pod pod1-2 was given"),
]


def test_what_a_pod_does_to_its_own_link_is_named():
    with lab("--nodes", "1", "--pods", "2") as running:
        addresses = {pod: running.run(pod, "hostname", "-I").split()[0] for pod in ("pod1-1", "pod1-2")}
        gateway = re.sub(r"\d+$", "1", addresses["pod1-1"])
        given = f"own={addresses['pod1-1']}; taken={addresses['pod1-2']}; gateway={gateway}; "
        for broken, mended, seen in POD_DOES:
            assert is_well_on(running, "node1")
            running.run("pod1-1", "sh", "-c", given + broken)
            [found] = findings(running)
            assert (found["code"], found["where"]) == ("CHECK-001", "eth0 of pod pod1-1")
            assert seen in found["seen"]
            running.run("pod1-1", "sh", "-c", given + mended)
        assert is_well_on(running, "node1")


def test_what_is_put_right_again_and_again_is_named():
    fought = [fault for fault in REPAIRED if fault.name in FOUGHT]
    with lab("--nodes", "2", "--pods", "1") as running:

        def named_once_they_fight_on() -> bool:
            """On a busy machine a round may take so long that some more are needed."""
            moment = time.monotonic()
            for fault in fought:
                before = repairs(running).get(fault.code, 0)
                running.weft("break", "node1", fault.name)
                eventually(lambda fault=fault, before=before: repairs(running).get(fault.code, 0) > before, seconds=30)
            time.sleep(max(0.0, ONE_MOMENT - (time.monotonic() - moment)))
            return {fault.code for fault in fought} <= {each["code"] for each in findings(running)}

        assert any(named_once_they_fight_on() for _ in range(12))


def test_faults_that_nothing_mends_are_named_one_after_the_other():
    with lab("--nodes", "2", "--pods", "1") as running:
        for fault in FOR_GOOD:
            assert fault.code not in {each["code"] for each in findings(running)}, fault.name
            running.weft("break", "node1", fault.name)
            assert fault.code in {each["code"] for each in findings(running)}, fault.name


def test_ipv6_that_is_off_is_named():
    with lab("--nodes", "2", "--pods", "1", "--family", "46") as running:
        running.run("node1", "sysctl", "-qw", "net.ipv6.conf.cni0.disable_ipv6=1")
        [found] = [each for each in findings(running) if each["code"] == "V6-001"]
        assert found["where"] == "sysctl net/ipv6/conf/cni0/disable_ipv6"
        assert not findings(running, "node2")


@pytest.mark.parametrize("what", HEALTHY)
def test_a_lab_without_a_fault_is_well(what: str):
    backend, family, rules, *beside = what.split()
    options = ("--backend", backend, "--family", family, *(("--nft",) if rules == "nft" else ()))
    with lab("--nodes", "2", "--pods", "1", *options) as running:
        for program in beside:
            let_in(running, program)
        assert not findings(running)
        if beside and backend != "alloc":  # that leads nowhere by itself
            assert running.weft("ping", "pod1-1", "pod2-1").returncode == 0
        said = running.weft("exec", "node2", "--", "weft", "doctor")
        assert said.stdout.endswith(" checks: 0 faults, 0 warnings\n")


def let_in(running: Lab, program: str) -> None:
    """Put the rules of a program on node1 that let pods through."""
    if program == "firewalld":
        running.weft("exec", "node1", "--", "nft", "-j", "-f", str(RULES / "firewalld-mended.json"))
    else:
        restore = ("iptables-restore", "--noflush")
        running.weft("exec", "node1", "--", *restore, str(RULES / f"{program}-mended.saved"))


ASKED_OF_A_BUNDLE = (
    ("doctor", "-o", "json"),
    ("doctor", "-v"),
    ("trace", "-o", "json", "ADDRESSES"),
    ("trace", "ADDRESSES"),
    ("peers", "-o", "json"),
    ("events",),
    ("events", "-o", "json", "-n", "2"),
    ("status", "-o", "json"),
)


Ran = subprocess.CompletedProcess[str]


def answers(running: Lab, file: str, name: str, *options: str) -> tuple[Ran, Ran]:
    """What the node answers, and what its bundle does."""
    given = [each for option in options for each in (addresses(running) if option == "ADDRESSES" else (option,))]
    live = running.weft("exec", "node1", "--", "weft", name, *given, check=False)
    return live, weft(name, "--from", file, *given, check=False)


def told(running: Lab) -> str:
    """What the node's daemon says of itself and of what happened."""
    return "".join(
        without_times(running.run("node1", "weft", command, "-o", "json", check=False))
        for command in ("status", "events")
    )


def test_a_bundle_answers_as_the_node_does(running: Lab, tmp_path: Path):
    file = str(tmp_path / "bundle.tar.gz")
    running.weft("break", "node1", "forward-dropped")
    try:
        # The daemon looks once a minute, and what it finds then the bundle does not have.
        before, after = "", told(running)
        while before != after:
            before = after
            running.run("node1", "weft", "bundle", "--out", file)
            said = [answers(running, file, *command) for command in ASKED_OF_A_BUNDLE]
            after = told(running)
        for live, offline in said:
            assert offline.returncode == live.returncode, offline.stderr
            assert without_times(offline.stdout) == without_times(live.stdout)
    finally:
        running.weft("break", "node1", "forward-dropped", "--mend")
    eventually(lambda: is_well(running), seconds=30)
    refused = weft("status", "--from", file, "--instance", "a", check=False)
    assert refused.returncode == 2
    assert "--from and --instance exclude each other" in refused.stderr


def addresses(running: Lab) -> list[str]:
    return [pod["addresses"][0].partition("/")[0] for pod in running.ps()["pods"]]


def without_times(text: str) -> str:
    """What a node says of itself without what goes on meanwhile: seconds, rounds, questions to the store."""
    text = re.sub(r'"count": \d+,\s+"received": \d+', '"count": 0', text)
    return re.sub(r'"(seconds|rounds|unannounced|heard)": [0-9.]+', r'"\1": 0', text)


def test_what_there_is_no_fault_of():
    listed = json.loads(weft("lab", "break", "-o", "json").stdout)["faults"]
    assert [each["name"] for each in listed] == [fault.name for fault in FAULTS]
    wrong = weft("lab", "break", "node1", "route-los", check=False)
    assert wrong.returncode == 2
    assert "Did you mean route-lost" in wrong.stderr


def test_a_fault_that_a_lab_cannot_have_is_refused(running: Lab):
    refused = running.weft("break", "node9", "route-lost", check=False)
    assert refused.returncode == 2
    assert "no node of this name; expected node1, node2" in refused.stderr
    with lab("--nodes", "1", "--pods", "0", "--backend", "host-gw") as other:
        refused = other.weft("break", "node1", "port-blocked", check=False)
        assert "a lab of back end host-gw; expected back end vxlan" in refused.stderr
