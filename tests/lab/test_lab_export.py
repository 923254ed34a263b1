"""A lab that was changed while it ran is exported; the file starts it again as it was."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.lab import Lab, lab, new_name, weft

_PASSING = ("pid", "id", "netns", "host_end")  # what is another each time


_DNS = {"hostPort": 5353, "containerPort": 53, "protocol": "UDP"}


def lasting(report: Any) -> Any:
    """What `ps` says, without what is another each time."""
    if isinstance(report, dict):
        return {key: lasting(value) for key, value in report.items() if key not in _PASSING}
    return [lasting(each) for each in report] if isinstance(report, list) else report


def picture(running: Lab) -> str:
    """What `graph` draws; the host's ends of pods' links have random names."""
    return re.sub(r"veth[0-9a-f]+", "veth", running.weft("graph", "-o", "dot").stdout)


def exported(running: Lab, tmp_path: Path, *lines: str) -> Path:
    """The file, whose export has said these lines of what is not in it."""
    ran = running.weft("export")
    assert ran.stderr.splitlines() == [f"weft: not in the file: {line}" for line in lines]
    file = tmp_path / "lab.yaml"
    file.write_text(ran.stdout)
    return file


def test_a_changed_lab_comes_up_again_as_it_was(tmp_path: Path):
    said = {
        "network": {"Network": "10.60.0.0/16", "Backend": {"Type": "vxlan"}},
        "nodes": [{"name": "left", "pods": 2}, {"name": "right", "pods": ["web"]}, {"name": "far", "segment": 2}],
        "pods": [{"name": "dns", "node": "left", "ports": [_DNS]}],
        "services": [{"name": "front", "port": 80, "pods": "web*"}],
        "cuts": [{"from": "far", "to": "store"}],
    }
    written = tmp_path / "first.yaml"
    written.write_text(json.dumps(said))
    with lab(str(written)) as running:
        running.weft("rm", "pod1-1")
        running.weft("run", "late", "--node", "left", "--ip", "10.60.1.77")
        running.weft("expose", "back", "dns", "--port", "53", "--udp", "--node-port", "30053")
        running.weft("link", "right", "--loss", "1%", "--rate", "50mbit")
        running.weft("heal")
        running.weft("partition", "left", "right", "--one-way")
        before, drawn = lasting(running.json("ps")), picture(running)
        file = exported(running, tmp_path)
    found = yaml.safe_load(file.read_text())
    assert found["nodes"][1] == {"name": "right", "link": {"loss": "1%", "rate": "50mbit"}}
    assert found["cuts"] == [{"from": "left", "to": "right"}]
    with lab(str(file)) as again:
        assert lasting(again.json("ps")) == before | {"name": again.name}
        assert picture(again).replace(again.name, "LAB") == drawn.replace(running.name, "LAB")
        assert exported(again, tmp_path).read_text().replace(again.name, "LAB") == yaml.safe_dump(
            found, sort_keys=False, width=120
        ).replace(running.name, "LAB")


def test_what_no_file_can_say_is_named_and_a_changed_back_end_is_in_the_file(tmp_path: Path):
    with lab("--nodes", "2", "--pods", "1") as running:
        network = running.json("ps")["network"]
        changed = tmp_path / "host-gw.json"
        changed.write_text(json.dumps(network | {"Backend": {"Type": "host-gw"}}))
        running.weft("config", "set", str(changed))
        running.weft("break", "node2", "route-lost")
        running.weft("kill", "node1/weftd")
        file = exported(running, tmp_path, "weftd of node1: exited -9", "fault node2 route-lost, of `weft lab break`")
    found = yaml.safe_load(file.read_text())
    assert found["network"]["Backend"] == {"Type": "host-gw"}
    assert weft("lab", "up", str(file), "--dry-run").stdout.startswith(f"lab {running.name} would be: host-gw")


def test_a_lab_that_is_not_up_is_named():
    name = new_name()
    ran = weft("lab", "export", "--lab", name, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "LAB-002" in ran.stderr
