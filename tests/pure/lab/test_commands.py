"""What the commands of a lab print, to the letter, and ask for: in front of a supervisor with prepared answers."""

import io
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from weft import cli
from weft.lab import places, protocol
from weft.lab.call import Deserted
from weft.lab.commands import show, start
from weft.lab.report import Cell, LabReport, Nothing, PingReport, PodReport
from weft.lab.spec import HostPort, Pod
from weft.model.errors import WeftError

NODES = [
    {
        "name": f"node{number}",
        "underlay": [f"172.31.0.1{number}"],
        "subnets": [f"10.244.{number}.0/24", f"fd00:{number}::/64"],
        "mtu": 1450,
        "daemon": daemon,
        "problems": problems,
        "pid": number,
    }
    for number, daemon, problems in ((1, "ready", []), (2, "not ready", ["devices failed: VTEP-002 x", "rules failed"]))
]
PODS = [
    PodReport(
        name=f"pod{number}-1",
        node=f"node{number}",
        addresses=[f"10.244.{number}.2/24", f"fd00:{number}::2/64"],
        id=f"c{number}",
        netns=f"/run/netns/c{number}",
    )
    for number in (1, 2)
]


def report(pods: int = 2) -> LabReport:
    nodes = msgspec.convert(NODES, type=LabReport.__annotations__["nodes"])
    return LabReport(
        name="weft",
        backend="vxlan",
        families=[4, 6],
        store="http://172.31.0.1:2379",
        store_state="ready",
        network=msgspec.Raw(b"{}"),
        nodes=nodes,
        pods=PODS[:pods],
    )


def cell(source: str, target: str, fault: Any = "", family: Any = 4, **fields: Any) -> Cell:
    address = "10.244.2.2" if family == 4 else "fd00:2::2"
    given = {"sent": 1, "milliseconds": 1.2345, "seen": "10.244.1.2"} | fields
    return Cell(source=source, target=target, family=family, address=address, fault=fault, **given)


def pinged(*cells: Cell) -> PingReport:
    return PingReport(tried=len(cells), reached=sum(not cell.fault for cell in cells), cells=list(cells))


LAB_TEXT = """\
lab weft: vxlan, IPv4 and IPv6, store http://172.31.0.1:2379 ready

NODE   UNDERLAY     POD SUBNET                   MTU   DAEMON
node1  172.31.0.11  10.244.1.0/24, fd00:1::/64  1450  ready
node2  172.31.0.12  10.244.2.0/24, fd00:2::/64  1450  not ready
node2: devices failed: VTEP-002 x
node2: rules failed
"""
PODS_TEXT = """
POD     NODE   ADDRESS
pod1-1  node1  10.244.1.2/24, fd00:1::2/64
pod2-1  node2  10.244.2.2/24, fd00:2::2/64
"""


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_lab_is_shown_with_its_nodes_their_problems_and_its_pods():
    assert words(show.lab(report())) == words(LAB_TEXT + PODS_TEXT)
    assert words(show.lab(report(pods=0))) == words(LAB_TEXT)


def test_a_ping_is_shown_as_a_line_for_each_cell():
    cells = (
        cell("pod1-1", "pod2-1"),
        cell("pod1-1", "pod2-1", "lost", sent=3, milliseconds=None, seen=""),
        cell("pod1-1", "pod2-1", "lost", sent=3, milliseconds=None, seen="10.244.1.2"),
        cell("pod1-1", "pod2-1", "unseen", seen=""),
        cell("pod1-1", "pod2-1", "translated", seen="172.31.0.11"),
    )
    way = "pod1-1 -> pod2-1 (10.244.2.2)"
    assert show.ping(pinged(*cells)).splitlines() == [
        f"{way}: 1.234 ms, seen there as 10.244.1.2",
        f"{way}: lost, 3 sent; nothing arrived there",
        f"{way}: lost, 3 sent; it arrived from 10.244.1.2, but no answer came back",
        f"{way}: answered in 1.2345 ms, but not by pod2-1, which saw nothing",
        f"{way}: 1.234 ms, seen there as 172.31.0.11, which is not an address of the source: translated on the way",
    ]


def test_all_pings_are_shown_as_a_matrix_for_each_family_and_the_faults_in_words():
    cells = (
        cell("pod2-1", "pod1-1", family=6),
        cell("pod1-1", "pod2-1", family=6),
        cell("pod2-1", "pod1-1", "translated"),
        cell("pod1-1", "pod2-1"),
        cell("node2", "pod2-1", "unseen", seen=""),
        cell("node2", "pod1-1", "lost", milliseconds=None, seen=""),
        cell("node1", "pod2-1", milliseconds=0.5),
    )
    assert show.pingall(pinged(*cells)).splitlines() == [
        "IPv4, from each line to each column, milliseconds",
        "        pod2-1  pod1-1",
        "pod2-1  -       nat",
        "pod1-1  1.23    -",
        "node2   unseen  lost",
        "node1   0.50    -",
        "",
        "IPv6, from each line to each column, milliseconds",
        "        pod2-1  pod1-1",
        "pod2-1  -       1.23",
        "pod1-1  1.23    -",
        "",
        *show.ping(pinged(cells[2], *cells[4:6])).splitlines(),
        "4 of 7 pings arrived from the source's own address, from 4 pods and nodes to 2 pods; 3 did not",
    ]


@pytest.mark.parametrize("targets, wide", [(14, False), (15, True)])
def test_a_matrix_that_fits_no_terminal_is_a_line_for_each_source(targets, wide):
    cells = [cell(f"pod{number}", f"pod{number}", milliseconds=float(number)) for number in range(targets)]
    cells += [cell("node", f"pod{number}", milliseconds=float(number)) for number in range(targets)]
    cells.append(cell("other", "pod0", "lost", milliseconds=None, seen=""))
    heading, first, *_, node, other = show.pingall(pinged(*cells)).partition("\n\n")[0].splitlines()[1:]
    assert (heading.split() == ["FROM", "REACHED", "TRIED", "SLOWEST"]) == wide
    if wide:
        rows = [line.split() for line in (first, node, other)]
        assert rows == [["pod0", "1", "1", "0.00"], ["node", "15", "15", "14.00"], ["other", "0", "1", "0.00"]]


class Lab:
    """A place whose lock is held, as by a supervisor, with a socket that gives one answer to everything."""

    def __init__(self, base: Path, name: str) -> None:
        self.place = places.make(base, name)
        self._lock = self.place.claim()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.place.socket))
        self._listener.listen()
        self.answer: msgspec.Struct | WeftError | int = Nothing()
        self.answers: dict[type, msgspec.Struct] = {}  # to requests of these kinds, in its place
        self.asked: list[Any] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.asked.append(msgspec.json.decode(connection.makefile("rb").readline(), type=protocol.Request))
                given = self.answers.get(type(self.asked[-1]), self.answer)
                if isinstance(given, WeftError):
                    answer: protocol.Answer = protocol.Failed.of(given)
                else:
                    answer = protocol.Done(msgspec.Raw(msgspec.json.encode(given)))
                with suppress(ConnectionError):  # whoever ends a lab does not wait for the answer
                    connection.sendall(msgspec.json.encode(answer) + b"\n")

    def end(self) -> None:
        """As if the supervisor was killed."""
        if self._lock is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            os.close(self._lock)
            self._lock = None


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Lab]]:
    made: list[Lab] = []

    def lab(name: str) -> Lab:
        made.append(Lab(tmp_path / "labs", name))
        return made[-1]

    monkeypatch.setattr(places, "home", lambda _: tmp_path / "labs")
    yield lab
    for one in made:
        one.end()


@pytest.fixture
def lab(make: Callable[[str], Lab]) -> Lab:
    return make("weft")


def weft(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    status = cli.run(["lab", *line.split()])
    return status, *capsys.readouterr()


def next_(*commands: str) -> str:
    return "\nNext: " + "\n      ".join(f"weft lab {command}" for command in commands) + "\n"


WAYS = (cell("pod1-1", "pod2-1"), cell("pod2-1", "pod1-1"))
REACHED, BROKEN = pinged(*WAYS), pinged(*WAYS, cell("node2", "pod2-1", "lost"))


@pytest.mark.parametrize(
    "line, answer, asked, ended",
    [
        ("ps", report(), protocol.Ps(), (0, show.lab(report()), next_("ping pod1-1 pod2-1", "pingall"))),
        ("ps", report(1), protocol.Ps(), (0, show.lab(report(1)), next_("run POD --node node1"))),
        (
            "run web --node node2",
            PODS[1],
            protocol.Run(Pod(name="web", node="node2")),
            (
                0,
                "pod pod2-1 runs on node2: 10.244.2.2/24, fd00:2::2/64\n",
                next_("exec web -- ip address", "rm web"),
            ),
        ),
        (
            "run web --node node2 --port 8080:80 --port 53:5353/udp --port 443:8443/tcp",
            PODS[1],
            protocol.Run(
                Pod(
                    name="web",
                    node="node2",
                    ports=(
                        HostPort(outside=8080, inside=80),
                        HostPort(outside=53, inside=5353, protocol="UDP"),
                        HostPort(outside=443, inside=8443),
                    ),
                )
            ),
            (
                0,
                "pod pod2-1 runs on node2: 10.244.2.2/24, fd00:2::2/64\n",
                next_("exec web -- ip address", "rm web"),
            ),
        ),
        (
            "run web --node node2 --network second --ip 10.99.0.20",
            PODS[1],
            protocol.Run(Pod(name="web", node="node2", network="second", ip="10.99.0.20")),
            (
                0,
                "pod pod2-1 runs on node2: 10.244.2.2/24, fd00:2::2/64\n",
                next_("exec web -- ip address", "rm web"),
            ),
        ),
        ("rm web", Nothing(), protocol.Remove("web"), (0, "pod web is gone\n", next_("ps"))),
        (
            "ping pod1-1 pod2-1",
            REACHED,
            protocol.Ping(source="pod1-1", target="pod2-1", count=3),
            (0, show.ping(REACHED), next_("capture pod1-1 --out packets.pcapng", "ps")),
        ),
        (
            "ping -c 10000 node2 pod2-1",
            BROKEN,
            protocol.Ping(source="node2", target="pod2-1", count=10000),
            (1, show.ping(BROKEN), next_("capture node2 --out packets.pcapng", "ps")),
        ),
        ("pingall", REACHED, protocol.PingAll(), (0, show.pingall(REACHED), "")),
        (
            "pingall",
            BROKEN,
            protocol.PingAll(),
            (1, show.pingall(BROKEN), next_("trace node2 pod2-1", "check")),
        ),
    ],
)
def test_what_a_command_asks_for_prints_and_proposes(lab, capsys, *, line, answer, asked, ended):
    lab.answer = answer
    if isinstance(answer, PingReport):
        lab.answers[protocol.Ps] = report()
    assert weft(capsys, line) == ended
    # A ping is judged by what the lab's policies say.
    assert lab.asked == [asked, *([protocol.Ps()] if isinstance(answer, PingReport) else [])]
    # In JSON it is the whole report, and nothing that is for people.
    status, document, said = weft(capsys, f"{line} -o json")
    assert (status, said) == (ended[0], "")
    assert json.loads(document) == ({"removed": "web"} if line == "rm web" else json.loads(msgspec.json.encode(answer)))


def test_next_commands_name_the_lab_when_another_is_up_or_it_is_not_the_usual_one(make, capsys):
    usual = make("weft")
    usual.answer = report(1)
    assert weft(capsys, "ps")[2] == next_("run POD --node node1")
    other = make("other")
    other.answer = report(1)
    assert weft(capsys, "ps -l weft")[2] == next_("run --lab weft POD --node node1")
    usual.end()
    assert weft(capsys, "ps")[2] == next_("run --lab other POD --node node1")


@pytest.mark.parametrize("port", ["80", "80:", "0:80", "80:65536", "80:80/sctp", "80:80:80", "٨٠:80"])
def test_a_host_port_that_is_none_is_refused(lab, capsys, port):
    status, out, err = weft(capsys, f"run web --node node2 --port {port}")
    assert (status, out, lab.asked) == (2, "", [])
    assert err.startswith(
        f"weft: FLAG-001 weft lab run --port: {port!r}; expected a port of the node and one of the pod"
    )


def test_a_lab_in_which_nothing_can_be_tried_is_not_checked(lab, capsys):
    alone = report(0)
    lab.answer = msgspec.structs.replace(alone, nodes=alone.nodes[:1])
    status, out, err = weft(capsys, "check")
    assert (status, out, lab.asked) == (2, "", [protocol.Ps()])
    assert err == (
        "weft: LAB-002 weft lab check: a lab of 1 node without pods. 'weft lab run POD --node node1' starts a pod.\n"
    )


def test_the_environment_names_the_lab_where_no_option_does(make, monkeypatch, capsys):
    labs = make("weft"), make("other")
    for each in labs:
        each.answer = report(1)
    monkeypatch.setenv("WEFT_LAB", "other")
    assert weft(capsys, "ps")[2] == next_("run POD --node node1")
    assert weft(capsys, "ps -l weft")[2] == next_("run --lab weft POD --node node1")
    assert [len(each.asked) for each in labs] == [1, 1]
    threading.Timer(0.1, labs[1].end).start()
    assert weft(capsys, "down") == (0, "lab other is down\n", "")
    assert weft(capsys, "ps")[0] == 2, "it goes on to mean the lab that is down"
    for command in ("ps", "up", "exec"):
        assert "WEFT_LAB" in weft(capsys, f"{command} --help")[1]


@pytest.mark.parametrize(
    "line", ["ping -c 0 a b", "ping -c 10001 a b", "up --nodes 0", "up --pods -1", "capture x --out y --seconds 0"]
)
def test_numbers_out_of_their_range_are_refused(lab, capsys, line):
    status, out, err = weft(capsys, line)
    assert (status, out, lab.asked) == (2, "", [])
    assert "is not in the range" in err


def test_what_ps_cannot_show_for_the_supervisor_failed_is_said(lab, capsys):
    lab.answer = Deserted()
    said = "weft: LAB-002 the lab: its supervisor ended without an answer. 'weft lab list' shows what is left of it"
    assert weft(capsys, "ps") == (1, "", f"{said}, and how to remove that.\n")


def test_a_list_of_labs_and_their_removal(make, tmp_path, capsys):
    nothing = (0, "no labs\n", "\nNext: weft lab up\n")
    assert weft(capsys, "list") == nothing
    assert weft(capsys, "clean") == (0, "no dead labs\n", "")
    up, *killed = make("up"), make("a"), make("b")
    for one in killed:
        one.end()
    table = "LAB  STATE  PID\na    dead   0\nb    dead   0\nup   up     0\n"
    assert weft(capsys, "list") == (0, table, "\nNext: weft lab clean a b\n")
    labs = [{"name": "a", "state": "dead"}, {"name": "b", "state": "dead"}, {"name": "up", "state": "up"}]
    assert json.loads(weft(capsys, "list -o json")[1]) == [{**lab, "pid": 0} for lab in labs]
    assert weft(capsys, "clean up")[0] == 2
    assert weft(capsys, "clean c a")[::2] == (
        2,
        "weft: LAB-002 c: no trace of a lab of this name; expected one of a, b, up\n",
    )
    assert weft(capsys, "clean a") == (0, "removed: a\n", "")
    assert weft(capsys, "clean -o json") == (0, '{\n  "removed": [\n    "b"\n  ]\n}\n', "")
    assert weft(capsys, "list") == (0, "LAB  STATE  PID\nup   up     0\n", "")
    up.end()


def test_an_end_is_told(lab, capsys):
    threading.Timer(0.1, lab.end).start()
    assert weft(capsys, "down") == (0, "lab weft is down\n", "")
    assert lab.asked == [protocol.Down()]
    assert not lab.place.path.exists()


@pytest.mark.parametrize(
    "labs, name, said",
    [
        ((), "", "LAB-002 lab: no lab is up. 'weft lab up' starts one."),
        ((), "x", "LAB-002 x: no lab is up"),
        (("a", "b"), "", "LAB-001 lab: 2 labs are up; expected one of a, b, by name"),
        (("a",), "x", "LAB-002 x: no lab named x is up; expected one of a, by name"),
    ],
)
def test_a_lab_that_cannot_be_meant(make, capsys, labs, name, said):
    for each in labs:
        make(each)
    assert weft(capsys, f"ps {f'--lab {name}' if name else ''}") == (2, "", f"weft: {said}\n")


def test_logs_are_printed_as_they_are(lab, capsys):
    (lab.place.logs / "node1.log").write_bytes(b"one\ntwo \xff\n")
    (lab.place.logs / "etcd.log").write_text("")
    assert weft(capsys, "logs node1") == (0, "one\ntwo \ufffd\n", "")
    lines = [{"name": "node1", "time": None, "line": line} for line in ("one", "two \ufffd")]
    assert json.loads(weft(capsys, "logs node1 -o json")[1]) == lines
    expected = "weft: LAB-002 weft lab logs: no log 'node2'; expected one of etcd, node1, all\n"
    assert weft(capsys, "logs node2") == (2, "", expected)
    status, out, err = weft(capsys, "logs --since never")
    assert (status, out) == (2, "")
    assert "'never' is no time; expected for example 90s, 5min, 14:30" in err


def test_several_logs_are_printed_by_time_behind_their_names_and_followed_until_they_go(lab, capsys):
    node, store = lab.place.logs / "node1.log", lab.place.logs / "etcd.log"
    node.write_text("2026-01-02T03:04:05Z a\n2026-01-02T03:04:07Z c\n2026-01-02T03:04:08Z is not comp")
    store.write_text("2026-01-02T03:04:06Z b\n")
    shown = ["node1 | 2026-01-02T03:04:05Z a", "etcd  | 2026-01-02T03:04:06Z b", "node1 | 2026-01-02T03:04:07Z c"]
    partial = "node1 | 2026-01-02T03:04:08Z is not comp"
    assert weft(capsys, "logs") == (0, "".join(f"{line}\n" for line in (*shown, partial)), "")

    def end() -> None:
        with node.open("a") as file:
            file.write("lete\n")
        (lab.place.logs / "node2.log").write_text("new\n")
        for path in lab.place.logs.iterdir():
            path.unlink()

    timer = threading.Timer(0.3, end)
    timer.start()
    status, out, err = weft(capsys, "logs all -f --tail 2")
    timer.join()
    assert (status, out.splitlines()[:2], err) == (0, shown[1:], "lab weft is down\n")


@pytest.mark.parametrize(
    "options, wanted",
    [
        ("", {"name": "weft", "families": (4,), "nodes": 3, "pods": 6, "backend": "vxlan", "nft": False}),
        (
            "--nodes 2 --pods 1 --backend host-gw --family 46 --nft --name x",
            {"name": "x", "families": (4, 6), "nodes": 2, "pods": 2, "backend": "host-gw", "nft": True},
        ),
        (
            "--pods 0 --family 6",
            {"name": "weft", "families": (6,), "nodes": 3, "pods": 0, "backend": "vxlan", "nft": False},
        ),
    ],
)
def test_a_lab_of_options(make, monkeypatch, capsys, options, wanted):
    started = []

    def up(lab, base, environ, *, note, keep):
        note("1 node made")
        started.append(lab)
        return report()

    monkeypatch.setattr(start, "up", up)
    status, out, err = weft(capsys, f"up {options}")
    assert (status, out) == (0, show.lab(report()))
    progress, _, proposed = err.partition("\n")
    assert progress.strip() == "0.00 s  1 node made"
    option, end = ("", "") if wanted["name"] == "weft" else (" --lab x", " x")
    assert proposed == next_(f"pingall{option}", f"exec{option} node1 -- ip route", f"down{end}")
    [lab] = started
    network = json.loads(lab.network)
    assert wanted == {
        "name": lab.name,
        "families": lab.families,
        "nodes": len(lab.nodes),
        "pods": len(lab.pods),
        "backend": network["Backend"]["Type"],
        "nft": network["EnableNFTables"],
    }


DRY = """\
lab edge would be: host-gw, IPv4, store etcd

NODE   UNDERLAY     POD SUBNET     DAEMON  PORTS OF THE MACHINE
node1  172.31.0.11  10.244.1.0/24  weftd   -

POD     NODE   ADDRESS
pod1-1  node1  10.244.1.2/24
pod1-2  node1  10.244.1.3/24

SERVICE  ADDRESS     PORT  PODS
web      10.96.0.11  80    pod*
"""


def test_options_stand_beside_a_file_which_may_be_standard_input(make, tmp_path, monkeypatch, capsys):
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: 2\nname: edge\nservices: [{name: web, port: 80, pods: 'pod*'}]\n")
    checked = []
    monkeypatch.setattr(start, "check", lambda lab, _base, _environ: checked.append(lab))
    given = "--nodes 1 --backend host-gw --dry-run"
    monkeypatch.setattr("sys.stdin", io.StringIO(path.read_text()))
    for line in (f"up {path} {given}", f"up -f {path} {given}", f"up - {given}"):
        assert weft(capsys, line) == (0, DRY, "")
    assert [lab.name for lab in checked] == ["edge"] * 3
    plan = json.loads(weft(capsys, f"up -f {path} --dry-run -o json --name other")[1])
    assert (plan["name"], len(plan["nodes"]), plan["pods"][2]["addresses"]) == ("other", 2, ["10.244.2.2/24"])
    seen = f"{path} and --file {path}; expected one file"
    assert weft(capsys, f"up -f {path} {path}") == (2, "", f"weft: LAB-001 weft lab up: {seen}\n")


def test_a_dry_run_finds_what_would_keep_a_lab_from_starting(make, capsys):
    make("weft")
    status, out, err = weft(capsys, "up --dry-run")
    assert (status, out) == (2, "")
    assert "LAB-002 weft: a lab of this name is up" in err


def test_a_lab_for_programs_is_json_alone(make, monkeypatch, capsys):
    monkeypatch.setattr(start, "up", lambda _lab, _base, _environ, *, note, **_: note("1 node made") or report())
    status, out, err = weft(capsys, "up -o json")
    assert (status, json.loads(out), err) == (0, json.loads(msgspec.json.encode(report())), "")


@pytest.mark.parametrize(
    "line, command",
    [
        ("exec -o json node1 -- ls -l", ["ls", "-l"]),
        ("exec -o json node1 ls -l -o text", ["ls", "-l", "-o", "text"]),
        ("exec node1 -o json -- sh", ["sh"]),
    ],
)
def test_a_command_is_run_with_the_terminals_variables_alone(lab, monkeypatch, capsys, line, command):
    variables = {name: f"a {name}" for name in ("TERM", "COLORTERM", "LANG", "LC_ALL", "LS_COLORS")}
    monkeypatch.setattr(os, "environ", variables | {"PATH": "/bin", "HOME": "/root"})
    lab.answer = 7
    status, out, err = weft(capsys, line)
    assert (status, json.loads(out), err) == (7, {"status": 7, "stdout": "", "stderr": ""}, "")
    assert lab.asked == [
        protocol.Exec(where="node1", command=command, environ=variables, tty=False, directory=str(Path.cwd()))
    ]


def test_an_option_of_exec_that_is_none_is_named(lab, capsys):
    said = "weft: FLAG-001 weft lab exec: no such option: -it; expected NODE|POD -- COMMAND."
    hint = "Leave it out: the command gets standard input, and a terminal where there is one."
    assert weft(capsys, "exec -it node1 -- sh") == (2, "", f"{said} {hint}\n")
    assert lab.asked == []


def test_packets_are_not_mixed_with_json(lab, capsys):
    status, out, err = weft(capsys, "capture node1 --out - -o json")
    assert (status, out, lab.asked) == (2, "", [])
    assert json.loads(err) == {
        "code": "LAB-001",
        "where": "--out -",
        "seen": "with -o json, which is for standard output too",
        "expected": "a file or a pipe",
        "hint": "weft lab capture … --out - | tcpdump -n -T vxlan -r -",
    }


def completed(line: str) -> list[str]:
    environ = {
        "_WEFT_COMPLETE": "bash_complete",
        "COMP_WORDS": f"weft lab {line}",
        "COMP_CWORD": str(len(line.split(" ")) + 1),
    }
    ran = CliRunner().invoke(cli.weft, [], prog_name="weft", env=environ)
    return [each.partition(",")[2] for each in ran.stdout.splitlines() if each]


BOTH = ["node1", "node2", "pod1-1", "pod2-1"]


@pytest.mark.parametrize(
    "line, found",
    [
        ("ps --lab ", ["weft"]),
        ("ps --lab x", []),
        ("down ", ["weft"]),
        ("clean ", ["weft"]),
        ("run web --node ", BOTH[:2]),
        ("run web --node node2", ["node2"]),
        ("rm ", BOTH[2:]),
        ("exec ", [*BOTH, "all"]),
        ("ping ", BOTH),
        ("ping node1 ", BOTH),
        ("logs ", ["all", "node1"]),
        ("logs n", ["node1"]),
        ("logs --lab none ", []),
        ("capture ", BOTH),
        ("ping --lab none ", []),
    ],
)
def test_the_shell_completes_what_is_there(lab, line, found):
    lab.answer = report()
    (lab.place.logs / "node1.log").touch()
    assert completed(line) == found
