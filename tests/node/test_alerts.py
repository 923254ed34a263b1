"""The alert rules, by Prometheus' own tool: what they say of hours of numbers, and that there are such numbers."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

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
    histograms = {name.removesuffix("_bucket") for name in used}
    assert histograms <= set(re.findall(r"`(weft_\w+)`", page))


def test_each_alert_is_tried():
    """One that never fires in a test may be one that never fires."""
    rules, tried = (yaml.safe_load(file.read_text()) for file in (RULES, HERE / "alerts.yaml"))
    named = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    fired = {each["alertname"] for test in tried["tests"] for each in test["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == named


def test_each_alert_names_its_runbook_which_says_four_things():
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text()
    sections = dict(re.findall(r"^## (Weft\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == list(sections)
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/reference/alerts.md#{rule['alert'].lower()}"
        said = re.findall(r"^- \*\*(.*?):\*\* \S", sections[rule["alert"]], re.MULTILINE)
        assert said == ["Users see", "Why", "weft does", "You"], rule["alert"]


def test_each_number_of_the_dashboard_is_one_that_weft_gives():
    page = (ROOT / "docs" / "reference" / "health.md").read_text()
    dashboard = json.loads((ROOT / "deploy" / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    used = {name.removesuffix("_bucket") for text in asked for name in re.findall(r"\bweft_\w+", text)}
    assert len(used) >= 10
    assert used <= set(re.findall(r"`(weft_\w+)`", page))
    rules = {"groups": [{"name": "asked", "rules": [{"record": "asked:it", "expr": text} for text in asked]}]}
    ran = subprocess.run(
        ["promtool", "check", "rules", "/dev/stdin"],
        input=json.dumps(rules).replace("$node", "a"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
