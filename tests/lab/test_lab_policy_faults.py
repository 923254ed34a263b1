"""Each fault that a lab with policies can have is named by the doctor, and may be a puzzle."""

import json
from collections.abc import Iterator

import pytest

from tests.lab.test_lab_doctor import findings, is_well_on, repairs
from tests.lab.test_lab_policy import allows, policy, written
from tests.support.lab import Lab, lab
from tests.support.weftd import eventually
from weft.lab.commands.choose import ask, find
from weft.lab.commands.quiz import fitting
from weft.lab.fault import Fault
from weft.lab.policyfaults import POLICED
from weft.lab.protocol import Ps
from weft.lab.quiz import draw


@pytest.fixture(scope="module")
def policed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = tmp_path_factory.mktemp("policies") / "none.yaml"
    with lab("--nodes", "2", "--pods", "1", "--policy", written(file, allows("none", {"pod": "nobody"}))) as running:
        yield running


@pytest.mark.parametrize("fault", [each for each in POLICED if not each.repaired], ids=lambda fault: fault.name)
def test_a_fault_that_stays_is_named_on_its_node_alone(policed: Lab, fault: Fault):
    policed.weft("break", "node1", fault.name)
    try:
        eventually(lambda: fault.code in {each["code"] for each in findings(policed)}, seconds=30)
        assert is_well_on(policed, "node2")
        reached = policed.reached("pod2-1", "pod1-1")[4]
        assert reached == (fault.name in ("enforced-twice", "unenforced")), "of others a user notices something"
    finally:
        policed.weft("break", "node1", fault.name, "--mend")
    eventually(lambda: is_well_on(policed, "node1") and policed.reached("pod2-1", "pod1-1")[4], seconds=30)


def test_a_bridge_that_passes_no_policies_is_put_right(policed: Lab):
    before = repairs(policed).get("POL-002", 0)
    policed.weft("break", "node1", "bridge-unfiltered")
    eventually(lambda: repairs(policed).get("POL-002", 0) > before, seconds=30)
    assert policed.run("node1", "sysctl", "-n", "net.bridge.bridge-nf-call-iptables") == "1\n"


def test_a_puzzle_of_policies(policed: Lab):
    faults = fitting(ask(find(policed.name), Ps()), "easy")
    seed = next(each for each in range(1000) if _is_misspelt_on_node2(draw(faults, ["node1", "node2"], each)))
    told = json.loads(policed.weft("quiz", "-o", "json", "start", "--seed", str(seed)).stdout)
    assert "pod1-1 does not reach pod2-1" in told["symptoms"]
    assert "a new pod does not start on node2" not in told["symptoms"], "the lab's own file goes on being read"
    assert "no-guests" in policy(policed, "denied"), "what a hint says to look at shows it"
    won = json.loads(policed.weft("quiz", "-o", "json", "check", "POL-005", "node2").stdout)
    assert (won["right"], won["mended"]) == (True, True)


def test_a_puzzle_in_which_nothing_is_lost(policed: Lab):
    faults = fitting(ask(find(policed.name), Ps()), "hard")
    drawn = ((seed, draw(faults, ["node1", "node2"], seed)) for seed in range(10_000))
    seed = next(seed for seed, (fault, node) in drawn if (fault.name, node) == ("unenforced", "node1"))
    told = json.loads(policed.weft("quiz", "-o", "json", "start", "--level", "hard", "--seed", str(seed)).stdout)
    assert "now pods there hear from whom they should not" in told["symptoms"][0]
    assert "Not enforced, as far as weft knows, on 1 other node: " in policed.run("node2", "weft", "policy", "list")
    won = json.loads(policed.weft("quiz", "-o", "json", "check", "POL-001", "node1").stdout)
    assert (won["right"], won["mended"]) == (True, True)


def _is_misspelt_on_node2(drawn: tuple[Fault, str]) -> bool:
    return (drawn[0].name, drawn[1]) == ("policy-misspelt", "node2")


def test_a_lab_without_policies_has_none_of_these_faults():
    with lab("--nodes", "2", "--pods", "0") as running:
        refused = running.weft("break", "node1", "policy-misspelt", check=False)
        assert refused.returncode == 2
        assert "enforce no policies of its own; expected one of 'weft lab up --policy FILE'" in refused.stderr
        assert not {each for each in fitting(ask(find(running.name), Ps()), "hard") if each.policies}
