"""Twenty nodes of a mesh, half behind two NATs, of which each reaches few: all daemons die and return under traffic."""

import json
import re
import subprocess

import pytest
import yaml

from tests.support.lab import WEFT, Lab, lab

FEW = 0.0005  # the share of packets that a busy machine loses by itself
PACKETS, PAUSE = 800, 0.05
BEHIND = {**dict.fromkeys(range(11, 16), 2), **dict.fromkeys(range(16, 21), 3)}  # node → segment


def described() -> str:
    """A ring of ten with some chords; each node behind a NAT reaches two of them, and the next behind its NAT."""
    reached = {node: [node % 10 + 1, *([node + 5] if node <= 4 else [])] for node in range(1, 11)}
    for node in BEHIND:
        reached[node] = [node * 3 % 10 + 1, node * 7 % 10 + 1, *([] if node in (15, 20) else [node + 1])]
    for one, other in ((11, 16), (12, 17)):
        reached[one].append(other)
    nodes = [{"name": f"node{node}", "segment": BEHIND.get(node, 1)} for node in range(1, 21)]
    lists = [[f"node{node}", *(f"node{other}" for other in others)] for node, others in reached.items()]
    return yaml.safe_dump({"store": "mesh", "nodes": nodes, "pods": 1, "nat": [2, 3], "topology": lists})


def pinging(running: Lab, source: str, target: str) -> "subprocess.Popen[str]":
    ping = ("ping", "-q", "-i", str(PAUSE), "-c", str(PACKETS), target)
    command = (WEFT, "lab", "exec", "--lab", running.name, source, "--", *ping)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.soak
def test_all_daemons_of_twenty_nodes_die_and_return_under_traffic(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(described())
    with lab(str(file)) as running:
        running.weft("pingall")
        pods = running.ps()["pods"]
        addresses = [pod["addresses"][0].partition("/")[0] for pod in pods]
        pings = [
            pinging(running, pod["name"], target)
            for pod, target in zip(pods, [*addresses[1:], addresses[0]], strict=True)
        ]
        daemons = [f"node{number}/weftd" for number in range(1, 21)]
        running.weft("kill", *daemons)
        running.weft("start", *daemons)
        ends = [re.search(r"(\d+) packets transmitted, (\d+) received", ping.communicate()[0]) for ping in pings]
        got = [int(end[2]) if end else 0 for end in ends]
        assert sum(got) >= len(pods) * PACKETS * (1 - FEW), json.dumps(got)
        running.weft("pingall")
