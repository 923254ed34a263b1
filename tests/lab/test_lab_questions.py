"""Each command of docs/howto/twenty-questions.md answers its question: the commands are taken from the page."""

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.lab import Lab, lab, weft
from tests.support.weftd import eventually

PAGE = (Path(__file__).parents[2] / "docs/howto/twenty-questions.md").read_text()
WELL, _, LOST = PAGE.partition("## When something is lost")
ROW = re.compile(r"^\| ([^|]+) \| `([^`]+)` \|", re.MULTILINE)
# What has to be in the output, as a regular expression, by question.
ANSWERS = {
    "what does the lab look like": r"pod2-1 +10\.244\.2\.2",
    "where do pods run, and with which address": r"pod2-1 +node2 +10\.244\.2\.2/24",
    "does everything reach everything": r"6 of 6 pings arrived",
    "which node is not ready, and which has most repairs": r"node1 +ready .* 1 of 1 +[1-9]",
    "which subnet has node2, and until when": r"lease +10\.244\.2\.0/24.* for 2[34] h",
    "how large may a pod's packet be": r"MTU of pods 1450",
    "which peers does this node serve": r"10\.244\.2\.0/24 +172\.31\.0\.12 .* served",
    "who has address 10.244.1.2": r"10\.244\.1\.2 .* attached",
    "what happened on node1, and what was repaired": r"repaired +ROUTE-001 .*10\.244\.2\.0/24",
    "what did the daemon of node2 say": r"lease 10\.244\.2\.0-24, public IP 172\.31\.0\.12",
    "what is set on the links": r"node2 +up +- +- +-",
    "which pods does a Service lead to": r"web .*pod2-1",
    "which way does a packet take": r"FDB .* is behind 172\.31\.0\.12",
    "how fast is the pod network": r"bit/s",
    "what is on the wire of node1": r"172\.31\.0\.11.* > 172\.31\.0\.12.*10\.244\.1\.2 > 10\.244\.2\.2",
    "what does FW-002 mean": r"drop packets between pods",
    "what do I send with a bug report": r"node1\.tar\.gz: \d+ files, .* secrets replaced",
    "why does pod1-1 not reach pod2-1": r"dropped by rule of inet somebody input",
    "what have all failures in common": r"from node1 to node2.*: REACH-001 on node2, .* dropped by rule",
    "is the firewall of node2 in the way": r"REACH-001 .*dropped by rule of inet somebody input",
}


@pytest.fixture(scope="module")
def running():
    with lab("--nodes", "2", "--pods", "1") as running:
        yield running
    Path("/tmp/node1.tar.gz").unlink(missing_ok=True)


def output(running: Lab, command: str) -> str:
    ran = weft(*shlex.split(command)[1:], check=False, env=os.environ | {"WEFT_LAB": running.name})
    return ran.stdout + ran.stderr


def unanswered(running: Lab, table: str) -> dict[str, str]:
    outputs = {question: output(running, command) for question, command in ROW.findall(table)}
    return {question: said for question, said in outputs.items() if not re.search(ANSWERS[question], said)}


def test_every_question_has_an_answer_and_there_are_twenty():
    asked = [question for question, _ in ROW.findall(PAGE)]
    assert sorted(asked) == sorted(ANSWERS)
    assert len(asked) == 20


def test_the_commands_answer(running: Lab):
    running.weft("expose", "web", "--port", "80", "pod2-1")
    running.run("node1", "ip", "route", "del", "10.244.2.0/24")
    eventually(lambda: running.run("node1", "ip", "route", "show", "10.244.2.0/24"), seconds=30)
    running.run("pod1-1", "sh", "-c", "ping -q -i 0.2 -w 300 10.244.2.2 >/dev/null 2>&1 &")  # something on the wire
    assert not unanswered(running, WELL)
    running.weft("break", "node2", "port-blocked")
    assert not unanswered(running, LOST)
