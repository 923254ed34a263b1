"""The alert rules, by Prometheus' own tool: what they say of hours of numbers, and that there are such numbers."""

import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RULES = ROOT / "deploy" / "alerts.yaml"


@pytest.mark.parametrize("command", [["check", "rules", RULES], ["test", "rules", HERE / "alerts.yaml"]])
def test_prometheus_takes_the_rules_and_alerts_as_they_say(command):
    ran = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout


def test_each_number_of_the_rules_is_one_that_weft_gives():
    """The page of the health port names them all: tests/pure/daemon/test_web_health.py."""
    page = (ROOT / "docs" / "reference" / "health.md").read_text()
    used = set(re.findall(r"\bweft_\w+", RULES.read_text()))
    assert len(used) >= 5
    assert used <= set(re.findall(r"`(weft_\w+)`", page))
