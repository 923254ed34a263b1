"""What the kernel of this machine cannot do, in a virtual machine with Debian's: one start for all checks of a run."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import flanneld
from tests.vm import inside, machine
from tests.vm.machine import Outcome, VmError

pytestmark = pytest.mark.timeout(machine.SECONDS + 100)

MODULES = (
    "tests.vm.scenarios_drops",
    "tests.vm.scenarios_obstacles",
    "tests.vm.scenarios_vlan",
    "tests.vm.scenarios_bridge",
    "tests.vm.scenarios_portmap",
    "tests.vm.scenarios_ipip",
    "tests.vm.scenarios_nodes",
    "tests.vm.scenarios_mesh",
    "tests.vm.scenarios_relay",
    "tests.vm.scenarios_links",
    "tests.vm.scenarios_policy",
)
ROWS = {
    "check_b6_the_gateway_of_a_vlan": "cni.md B6",
    "check_b6_the_default_vlan_is_kept_if_asked_for": "cni.md B6",
    "check_b7_a_trunk": "cni.md B7",
    "check_sctp_in_rules_of_iptables": "cni.md M23",
}
BESIDE = "tests.vm.scenarios_flanneld"  # needs upstream's daemon
CHECKS = {name: module for module in (*MODULES, BESIDE) for name in vars(import_module(module)) if name[:6] == "check_"}


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """What became of the checks that this run does: one machine for all of them."""
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = [each.callspec.params["check"] for each in functions if each.originalname == test_in_the_machine.__name__]
    modules = MODULES if flanneld.built() is None else (*MODULES, BESIDE)
    return machine.boot(*(f"{CHECKS[name]}.{name}" for name in wanted if CHECKS[name] in modules))


@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.spec(ROWS[name]) if name in ROWS else ()) for name in CHECKS]
)
def test_in_the_machine(outcomes: dict[str, Outcome], check: str, record_property: Callable[[str, object], None]):
    if CHECKS[check] == BESIDE and flanneld.built() is None:
        pytest.skip(f"{flanneld.HINT} builds upstream's daemon, on an x86-64 machine")
    record_property("seconds in the machine", outcomes[check].seconds)
    assert not outcomes[check].failure, outcomes[check].failure


def test_a_check_that_fails_says_where():
    def check() -> None:
        raise AssertionError("as planned")

    outcome = inside.run(check)
    assert "AssertionError: as planned" in str(outcome["failure"])
    assert "test_vm.py" in str(outcome["failure"])


@pytest.mark.parametrize("report", ["", '{"check": "check_x", "failure": "", "seconds": 1}\n', "en"])
def test_a_machine_that_did_not_come_to_its_end_shows_its_console(tmp_path: Path, report: str):
    (tmp_path / "console").write_text("x" * 9000 + "Kernel panic")
    (tmp_path / "report").write_text(report)
    with pytest.raises(VmError, match=r"(?s)last words: .*not finished.*Kernel panic"):
        machine.read_report(tmp_path / "report", tmp_path / "console", "not finished")


def test_every_row_has_its_check():
    assert set(ROWS) <= CHECKS.keys()
