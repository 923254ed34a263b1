"""Processes without rights that hold names of weft's, or its sockets: no command believes them or waits for them."""

import json
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.node.test_status import ask, asked, run
from tests.support.squatter import ROOT, ROOT_IN_A_USER_NAMESPACE, USER, squatting
from tests.support.weftd import VXLAN, Cluster, Daemon

WEFT = str(Path(sys.executable).with_name("weft"))
NAMES = ("weft/instance/zz", "weft/instance/\x1b]0;owned\x07\x1b[31mred", "weft/instance/\x9b31m", "weft/instance/")
# Holds a name and answers whoever asks there, at once and without end.
ANSWERS = """
import socket, sys, threading
made = socket.socket(socket.AF_UNIX)
made.bind(chr(0) + sys.argv[1])
made.listen(64)
print("held", flush=True)
def answer(client):
    try:
        while True:
            client.sendall(b"x" * 65536)
    except OSError:
        pass
while True:
    threading.Thread(target=answer, args=made.accept()[:1], daemon=True).start()
"""
COMMANDS = {
    "status": ["status"],
    "peers": ["peers"],
    "events": ["events"],
    "doctor": ["doctor"],
    "plan": ["plan"],
    "bundle": ["bundle"],
    "check": ["check"],
}


def weft(node: Daemon, *words: str) -> str:
    """What a command prints, to both outputs."""
    folders = [f"--{name}-dir={node.folder}" for name in ("conf", "bin")] if words[0] == "doctor" else []
    folders += ["--out", f"{node.folder}/bundle.tar.gz"] if words[0] == "bundle" else []
    file = [f"--subnet-file={node.subnet_file}"] if words[0] in ("doctor", "check") else []
    done = node.netns.popen([WEFT, *words, *folders, *file], stdout=PIPE, stderr=PIPE)
    out, err = done.communicate(timeout=200)
    return (out + err).decode(errors="replace")


@pytest.mark.parametrize(
    "wrap", [USER, ROOT, ROOT_IN_A_USER_NAMESPACE], ids=["a user", "root without rights", "root of a user namespace"]
)
def test_a_name_that_a_stranger_holds_blinds_no_command(cluster: Cluster, wrap: Sequence[str]):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    well = weft(node, "doctor")
    with squatting(node.netns, *NAMES, wrap=wrap):
        assert asked(node)["pid"] == node.pid
        assert json.loads(weft(node, "plan", "-o", "json"))["steps"] == []
        for name, words in COMMANDS.items():
            said = weft(node, *words)
            assert "daemons run here" not in said, f"{name}: {said}"
            assert "no weftd runs here" not in said, f"{name}: {said}"
            assert not {"\x1b", "\x9b", "\x07"} & set(said), f"{name}: {said!r}"
        assert weft(node, "doctor") == well


def test_a_stranger_that_was_first_at_a_daemons_own_name_blinds_nobody(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    name = str(asked(node)["instance"])
    node.stop()
    with squatting(node.netns, f"weft/instance/{name}", wrap=ROOT):
        node.start()
        assert asked(node)["pid"] == node.pid
        assert "no weftd runs here" not in weft(node, "peers")


def test_an_answer_without_end_of_root_without_rights_is_not_even_read(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    with node.netns.popen([*ROOT, sys.executable, "-c", ANSWERS, "weft/instance/aa"], stdout=PIPE) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"held\n"
            assert asked(node)["pid"] == node.pid
            said = ask(node, "--instance", "aa")
            assert said.returncode == 1
            assert "INST-003 --instance aa: no daemon of that name" in said.stderr
        finally:
            stranger.kill()


def test_clients_that_ask_nothing_keep_nobody_away(cluster: Cluster):
    cluster.configure(VXLAN)
    node = cluster.node(1).start()
    address = f"\0weft/instance/{asked(node)['instance']}"
    with ExitStack() as held:
        for _ in range(40):
            idle = held.enter_context(closing(node.netns.call(lambda: socket.socket(socket.AF_UNIX))))
            idle.setblocking(False)
            idle.connect_ex(address)
        for _ in range(3):
            assert run(node, WEFT, "status").returncode == 0
