"""A packet's way for learners: a sentence for each step, and a diagram."""

import re
from pathlib import Path

import pytest

from weft.diag.trace import sequence
from weft.diag.trace.hops import Hop, Way
from weft.diag.trace.sequence import Stage, diagram, sentence
from weft.model.errors import Problem

SOURCE = Path(sequence.__file__).parents[2]
STEPS = re.compile(r'(?:what=|\.passes\(|\.drop\(|\.up\(\s*\w+,\s*)"([^"{]+)"')


def test_each_step_that_the_source_names_has_a_sentence():
    named = set()
    for file in (SOURCE / "diag/trace").glob("*.py"):
        named |= set(STEPS.findall(file.read_text()))
    assert named | {"DNAT", "SNAT"} == set(sequence._SENTENCES)
    assert all(sentence(what).endswith(".") for what in named)
    assert sentence("rules at forward").startswith("Programs hang rules into the packet filter")
    assert sentence("NAT at prerouting") == "Rules here may give the packet another address."
    with pytest.raises(KeyError):
        sentence("nothing")


ROUTE = Hop(what="route", seen="10.0.0.0/8 by #1; <x>")
OUT = Hop(what="out by", seen="eth0", device="eth0")
LOST = Problem(code="FW-002", where="forward", seen="dropped")


def test_a_diagram_has_a_note_for_each_place_and_an_arrow_to_the_next():
    stages = [
        Stage(place="pod1-1", way=Way(hops=(), end="sent")),
        Stage(place="node1", way=Way(hops=(ROUTE, OUT), end="sent", carried="VXLAN 1"), counted={"eth0": 3}),
        Stage(place="node2", way=Way(hops=(OUT,), end="delivered"), counted={"eth0": 0}),
        Stage(place="node2", way=Way(hops=(), end="sent"), back=True),
        Stage(place="node1", way=Way(hops=(), end="dropped", problem=LOST), back=True),
    ]
    assert diagram(stages) == (
        "sequenceDiagram\n"
        "  participant p0 as pod1-1\n"
        "  participant p1 as node1\n"
        "  participant p2 as node2\n"
        "  p0->>p1: sent\n"
        "  Note over p1: ✓ route: 10.0.0.0/8 by #35;1#59; #lt;x#gt;<br/>✓ +3 out by: eth0\n"
        "  p1->>p2: VXLAN 1\n"
        "  Note over p2: ✓ 0 out by: eth0\n"
        "  p2-->>p1: sent\n"
        "  p1-xp1: FW-002 forward: dropped\n"
    )
