"""Labs as a library, as the page about it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft.lab import places
from weft.lab.testing import lab, shown
from weft.model.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs/howto/test-with-a-lab.md"


@pytest.fixture
def blocks() -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 4
    return found


def test_a_lab_ends_with_its_block_and_says_what_goes_wrong():
    notes = []
    with lab("nodes: [left, right]\npods: 0\nname: of-the-file", backend="host-gw", note=notes.append) as running:
        report = running.report()
        assert [(node.name, node.daemon) for node in report.nodes] == [("left", "ready"), ("right", "ready")]
        assert (report.backend, report.name) == ("host-gw", running.name)
        assert running.exec("left", "sh", "-c", "echo out; echo err >&2").stderr == "err\n"
        assert running.exec("left", "false", check=False).returncode == 1
        with pytest.raises(subprocess.CalledProcessError):
            running.exec("left", "false")
        with pytest.raises(ConfigError, match="no node or pod of this name"):
            running.ping("left", "middle")
        assert running.run("web", "right").addresses == ["10.244.2.2/24"]
        running.run("db", "left")
        tried = running.pingall()
        assert tried.reached == tried.tried > 2
        running.remove("db")
        assert [pod.name for pod in running.report().pods] == ["web"]
        assert "lease 10.244.1.0-24" in running.log("left")
        with pytest.raises(ConfigError, match="a lab of this name is up"), lab(name=running.name):
            pass
    assert "2 nodes made" in notes
    assert running.name not in [place.name for place in places.found(places.home({}))]


def test_a_lab_is_broken_and_tells_why():
    with lab(nodes=2, pods=1) as running:
        assert running.link("node2", loss="100%").links["node2"].loss == 100
        lost = running.ping("pod1-1", "pod2-1")
        assert not lost.reached
        assert "pod1-1 -> pod2-1 (10.244.2.2): lost" in shown(lost)
        running.link(clear=True)
        assert running.turn("kill", "node1/weftd").things[0].state.startswith("exited")
        assert "node1/weftd: ready" in shown(running.turn("start", "node1/weftd"))
        running.break_("node2", "port-blocked")
        traced = running.trace("pod1-1", "pod2-1")
        assert not traced.well
        assert "rule of inet somebody input" in shown(traced)
        running.break_("node2", "port-blocked", mend=True)
        with pytest.raises(ConfigError, match="Did you mean port-blocked"):
            running.break_("node2", "port-blockd")
        well = running.check(quick=True)
        assert not well.failed, shown(well)
        assert "lab" in shown(running.report())
        assert shown(running.heal()).startswith("NODE")


def test_the_examples_of_the_page_work_with_pytest(blocks, tmp_path):
    example, shown, conftest, tests = blocks
    (tmp_path / "conftest.py").write_text(conftest)
    for number, each in enumerate((example, shown)):
        indented = "".join(f"    {line}\n" for line in each.splitlines())
        tests += f"\n\ndef test_example_{number}():\n{indented}"
    (tmp_path / "test_page.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout
