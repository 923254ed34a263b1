"""What a line at the prompt of a lab means."""

import pytest

from weft.lab.commands.using.shell import command_line
from weft.model.errors import ConfigError

VERBS = frozenset(("ps", "ping", "pingall", "exec", "run"))


@pytest.mark.parametrize(
    "line, words",
    [
        ("", []),
        ("   ", []),
        ("# ping a b", []),
        ("ps", ["lab", "ps"]),
        (" ping  pod1-1   pod2-1 -c 1 ", ["lab", "ping", "pod1-1", "pod2-1", "-c", "1"]),
        ("run 'web' --node node1", ["lab", "run", "web", "--node", "node1"]),
        ("pod1-1 ping -c1 pod2-1", ["lab", "exec", "pod1-1", "--", "sh", "-c", "ping -c1 pod2-1"]),
        ("node1 -- ip route", ["lab", "exec", "node1", "--", "sh", "-c", "ip route"]),
        ("node1 ip r | grep 'a  b' # c", ["lab", "exec", "node1", "--", "sh", "-c", "ip r | grep 'a  b' # c"]),
        ("all hostname", ["lab", "exec", "all", "--", "sh", "-c", "hostname"]),
    ],
)
def test_a_line(line, words):
    assert command_line(line, VERBS) == words


@pytest.mark.parametrize(
    "line, said",
    [
        ("pigall", "a word alone; expected a lab command, or NODE COMMAND or POD COMMAND. Did you mean 'pingall'?"),
        ("node1", "a word alone; expected a lab command, or NODE COMMAND or POD COMMAND. 'help' says more."),
        ("ping 'a b", "no closing quotation; expected quotes in pairs"),
    ],
)
def test_a_line_that_means_nothing(line, said):
    with pytest.raises(ConfigError) as caught:
        command_line(line, VERBS)
    assert str(caught.value) == f"FLAG-001 weft lab sh: {line}: {said}"
