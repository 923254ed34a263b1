"""`weft cni add` and its sisters: variables, ids and cache are cnitool's. The plugins record their calls."""

import hashlib
import json
import os
import shlex

import pytest

from tests.kernel.recording import Recording
from tests.support.netns import Netns
from weft import cli

NET = {"name": "net", "cniVersion": "1.1.0", "plugins": [{"type": "one", "capabilities": {"mac": True}}]}


@pytest.fixture
def recording(tmp_path, monkeypatch):
    made = Recording(tmp_path, ["one"])
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def netns(tmp_path):
    """A path that leads to a network namespace as long as this process lives."""
    path = tmp_path / "netns"
    path.symlink_to(f"/proc/{os.getpid()}/ns/net")
    return str(path)


@pytest.fixture
def weft(tmp_path, recording, capfd, monkeypatch):
    """Run a command line, and return its exit code and what it printed."""
    monkeypatch.setenv("NETCONFPATH", str(tmp_path / "net.d"))
    monkeypatch.setenv("CNI_PATH", str(recording.bin_dir))
    configure(tmp_path)

    def run(verb, *args):
        code = cli.run(["cni", verb, "--cache-dir", str(tmp_path / "cache"), *args])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def configure(tmp_path, name="10-net.conflist", **keys):
    (tmp_path / "net.d").mkdir(exist_ok=True)
    (tmp_path / "net.d" / name).write_text(json.dumps({**NET, **keys}))


def said(code, out, err, *, code_of="CNI-003"):
    """Return what a command that failed said, in one line."""
    assert (code, out) == (2 if code_of in ("CONF-002", "FLAG-001") else 1, "")
    assert err.startswith(f"weft: {code_of} ")
    [line] = err.splitlines()
    return line


def test_add_calls_with_cnitools_id_and_variables(weft, recording, monkeypatch, netns):
    monkeypatch.setenv("CNI_ARGS", "A=1;B=2")
    monkeypatch.setenv("CAP_ARGS", '{"mac": "c2:11:22:33:44:55", "ips": []}')
    monkeypatch.setenv("CNI_IFNAME", "net1")
    code, out, _ = weft("add", "net", netns)
    [call] = recording.calls
    digest = hashlib.sha512(netns.encode()).hexdigest()[:20]
    assert call.env["CNI_CONTAINERID"] == f"cnitool-{digest}"
    assert (call.env["CNI_NETNS"], call.env["CNI_IFNAME"], call.env["CNI_ARGS"]) == (netns, "net1", "A=1;B=2")
    assert call.conf["runtimeConfig"] == {"mac": "c2:11:22:33:44:55"}
    assert (code, out) == (0, "MADE       WHAT  WHERE\ninterface  one   here\n")


def test_the_id_is_that_of_the_specifications_example():
    from weft.cni.commands import byhand

    assert byhand.container_id("/run/netns/cnispec-c1") == "cnitool-fe104b257085c890ec4d"
    assert byhand.container_id("/run/netns/x/../cnispec-c1") == "cnitool-fe104b257085c890ec4d"


def test_options_win_over_variables(weft, recording, monkeypatch, netns, tmp_path):
    for name in ("CNI_ARGS", "CAP_ARGS", "CNI_IFNAME", "CNI_PATH", "NETCONFPATH"):
        monkeypatch.setenv(name, "not used")
    options = ["--net-dir", str(tmp_path / "net.d"), "--path", f"/nowhere:{recording.bin_dir}"]
    code, out, _ = weft(
        "add", *options, "--args", "K=V", "--cap-args", '{"mac": 1}', "-i", "eth7", "net", netns, "-o", "json"
    )
    [call] = recording.calls
    assert (call.env["CNI_IFNAME"], call.env["CNI_ARGS"], call.conf["runtimeConfig"]) == ("eth7", "K=V", {"mac": 1})
    assert (code, json.loads(out)) == (0, {"interfaces": [{"name": "one"}], "cniVersion": "1.1.0"})


def test_an_empty_variable_is_as_none(weft, recording, monkeypatch, netns):
    for name in ("CNI_ARGS", "CAP_ARGS", "CNI_IFNAME"):
        monkeypatch.setenv(name, "")
    assert weft("add", "net", netns)[0] == 0
    assert recording.calls[0].env["CNI_IFNAME"] == "eth0"


@pytest.mark.spec("cni.md X33")
@pytest.mark.parametrize(
    "variable, code, words",
    [
        ("CNI_ARGS=bad", "FLAG-001", 'invalid CNI_ARGS pair "bad"'),
        ("CNI_ARGS=K=", "FLAG-001", 'invalid CNI_ARGS pair "K="'),
        ("CNI_PATH=:", "CNI-001", "no paths provided"),
        ("CAP_ARGS={", "FLAG-001", "Expecting property name"),
        ("CAP_ARGS=[]", "FLAG-001", "expected a JSON object"),
    ],
)
def test_variables_that_are_refused(weft, monkeypatch, variable, code, words):
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    assert words in said(*weft("add", "net", "/netns"), code_of=code)


def test_a_plugin_that_fails_says_so_in_its_own_words(weft, recording, netns):
    recording.does("one", "ADD", """echo '{"code": 11, "msg": "no lease", "details": "wait"}'; exit 1""")
    line = said(*weft("add", "net", netns))
    assert line.startswith('weft: CNI-003 network net: plugin type="one" failed (add): no lease; wait. `weft cni del ')
    assert line.endswith(f" net {netns}` removes what was made.")


@pytest.mark.parametrize("ifname", ["eth0", "net1;reboot", "-i"])
def test_the_hint_of_a_failed_add_undoes_just_that_add(weft, recording, monkeypatch, netns, ifname):
    recording.does("one", "ADD", """echo '{"code": 999, "msg": "no"}'; exit 1""")
    monkeypatch.setenv("CNI_ARGS", "A=1;B=2 3")
    path = f"/nowhere:{recording.bin_dir}"
    line = said(*weft("add", "--path", path, "--cap-args", '{"mac": "x"}', f"--ifname={ifname}", "net", netns))
    for variable in ("CNI_ARGS", "CNI_PATH", "NETCONFPATH"):
        monkeypatch.delenv(variable)
    hint = shlex.split(line.partition("`")[2].rpartition("`")[0])
    assert hint[0] == "weft"
    assert cli.run(hint[1:]) == 0
    add, delete = recording.calls
    assert (add.command, delete.command) == ("ADD", "DEL")
    for variable in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS", "CNI_PATH"):
        assert delete.env[variable] == add.env[variable]
    assert delete.env["CNI_IFNAME"] == ifname
    assert delete.conf == add.conf


def test_a_failed_add_does_not_advise_to_remove_what_was_there_before(weft, recording):
    recording.does("one", "ADD", """echo '{"code": 999, "msg": "no"}'; exit 1""")
    with Netns() as pod:
        hint = said(*weft("add", "net", pod.path)).partition("no. ")[2]
        assert hint.startswith("`weft cni del ")
        pod.bridge("eth0", "10.1.2.3/24")
        assert said(*weft("add", "-i", "net1", "net", pod.path)).partition("no. ")[2].startswith("`weft cni del ")
        hint = said(*weft("add", "net", pod.path)).partition("no. ")[2]
        assert " del " not in hint
        assert hint.startswith(f"{pod.path} had its eth0 before: `weft cni check ")
        assert cli.run(shlex.split(hint.partition("`")[2].partition("`")[0])[1:]) == 0
        assert [call.command for call in recording.calls] == ["ADD", "ADD", "ADD", "CHECK"]


@pytest.mark.parametrize(
    "path, hint",
    [
        ("/run/netns/weft-none", "There is no network namespace at {}: `ip netns add weft-none` makes one."),
        ("/run/netns/a b", "There is no network namespace at {}: `ip netns add 'a b'` makes one."),
        ("/none/weft", "There is no network namespace at {}."),
        ("/dev/null", "There is no network namespace at {}."),
    ],
)
def test_a_failed_add_without_a_namespace_says_so(weft, recording, path, hint):
    recording.does("one", "ADD", """echo '{"code": 999, "msg": "no"}'; exit 1""")
    assert said(*weft("add", "net", path)).endswith(f"no. {hint.format(path)}")


@pytest.mark.parametrize("ifname", ["x" * 16, "a/b", ".."])
def test_an_add_that_never_began_has_nothing_to_remove(weft, recording, netns, ifname):
    assert "`" not in said(*weft("add", "-i", ifname, "net", netns))
    assert recording.calls == []


def test_a_hint_names_a_namespace_that_looks_like_an_option(weft, recording, monkeypatch, netns, tmp_path):
    recording.does("one", "ADD", """echo '{"code": 999, "msg": "no"}'; exit 1""")
    (tmp_path / "-i").symlink_to(netns)
    monkeypatch.chdir(tmp_path)
    line = said(*weft("add", "net", "--", "-i"))
    assert cli.run(shlex.split(line.partition("`")[2].rpartition("`")[0])[1:]) == 0
    add, delete = recording.calls
    assert delete.env["CNI_NETNS"] == add.env["CNI_NETNS"]


def test_a_hint_names_no_option_that_is_as_usual(weft, recording, netns):
    recording.does("one", "ADD", """echo '{"code": 999, "msg": "no"}'; exit 1""")
    line = said(*weft("add", "net", netns))
    assert not [option for option in ("--ifname", "--args", "--cap-args", "--output") if option in line]


def test_a_plugin_that_is_missing_has_its_code(weft, recording, netns):
    (recording.bin_dir / "one").unlink()
    assert 'failed to find plugin "one"' in said(*weft("add", "net", netns), code_of="CNI-001")


def test_a_network_that_is_not_there(weft, tmp_path, netns):
    (tmp_path / "net.d" / "00-bad.conflist").write_text("{")
    line = said(*weft("add", "other", netns), code_of="CONF-002")
    assert 'no net configuration with name "other"' in line
    assert "00-bad.conflist: error parsing configuration list: " in line


def test_a_broken_file_is_told_and_hides_nothing(weft, tmp_path, netns):
    (tmp_path / "net.d" / "00-bad.conflist").write_text("{")
    code, _, err = weft("add", "net", netns)
    assert code == 0
    assert err.startswith(f"weft: CONF-002 --net-dir {tmp_path}/net.d: skipped {tmp_path}/net.d/00-bad.conflist: ")
    assert json.loads(weft("del", "net", netns, "-o", "json")[2])["code"] == "CONF-002"


def test_what_was_added_is_checked_and_deleted(weft, recording, netns):
    weft("add", "net", netns)
    assert weft("check", "net", netns) == (0, f"eth0 of {netns} is as it was made\n", "")
    assert weft("del", "net", netns) == (0, f"eth0 of {netns} is off net\n", "")
    assert json.loads(weft("del", "net", netns, "-o", "json")[1]) == {"deleted": {"netns": netns, "ifname": "eth0"}}
    assert recording.asked == ["ADD one", "CHECK one", "DEL one", "DEL one"]
    assert [previous is None for previous in recording.conf("prevResult")] == [True, False, False, True]


def test_what_nobody_is_asked_is_said(weft, recording, tmp_path, netns):
    configure(tmp_path, disableCheck=True, disableGC=True, cniVersion="1.0.0")
    assert weft("check", "net", netns)[1] == "net has disableCheck: no plugin was asked\n"
    assert weft("gc", "net")[1] == "net has disableGC: nothing was done\n"
    assert weft("status", "net")[1] == "net speaks 1.0.0: no plugin was asked, STATUS came with 1.1.0\n"
    configure(tmp_path, cniVersion="1.0.0")
    assert weft("gc", "net")[1].endswith("net speaks 1.0.0: its plugins were not asked, GC came with 1.1.0\n")
    assert recording.calls == []


class TestGc:
    """What is freed, and what never is."""

    @pytest.fixture
    def attached(self, weft, netns, tmp_path):
        """Two attachments, one of a namespace that is gone."""
        gone = str(tmp_path / "gone")
        for path in (netns, gone):
            assert weft("add", "net", path)[0] == 0
        return netns, gone

    def test_only_what_is_gone(self, weft, attached, recording):
        live, gone = attached
        code, out, _ = weft("gc", "net", "-o", "json")
        assert code == 0
        assert [(each["state"], each["netns"]) for each in json.loads(out)["attachments"]] == [
            ("kept", live),
            ("ended", gone),
        ]
        assert recording.asked[2:] == ["DEL one", "GC one"]
        assert recording.calls[2].env["CNI_NETNS"] == gone
        assert [each["ifname"] for each in recording.calls[3].conf["cni.dev/valid-attachments"]] == ["eth0"]

    @pytest.mark.usefixtures("attached")
    def test_everything_if_so_asked(self, weft, recording):
        assert weft("gc", "net", "/ignored", "--all")[0] == 0
        assert recording.asked[2:] == ["DEL one", "DEL one", "GC one"]
        assert recording.calls[4].conf["cni.dev/valid-attachments"] == []
        assert weft("gc", "net")[1] == "no attachment is known\n"

    @pytest.mark.usefixtures("attached")
    def test_nothing_on_incomplete_knowledge(self, weft, recording, tmp_path):
        torn = tmp_path / "cache" / "results" / "net-torn-eth0"
        torn.write_text("{")
        line = said(*weft("gc", "net"))
        assert str(torn) in line
        assert "Nothing was freed." in line
        assert len(recording.calls) == 2

    def test_a_file_that_once_was_a_namespace_is_none(self, weft, recording, tmp_path):
        leftover = tmp_path / "leftover"
        leftover.touch()
        weft("add", "net", str(leftover))
        assert "ended" in weft("gc", "net")[1]
        assert recording.asked[1:] == ["DEL one", "GC one"]
        assert recording.calls[1].env["CNI_NETNS"] == "", "plugins refuse a path that leads to a file"

    @pytest.mark.usefixtures("attached")
    def test_a_plugin_that_fails(self, weft, recording):
        recording.does("one", "GC", """echo '{"code": 7, "msg": "broken"}'; exit 1""")
        assert "failed to GC plugin one: broken" in said(*weft("gc", "net"))


def test_status(weft, recording, netns):
    assert weft("status", "net", netns) == (0, "net is ready\n", "")
    recording.does("one", "STATUS", """echo '{"code": 50, "msg": "no lease"}'; exit 1""")
    assert said(*weft("status", "net")) == "weft: CNI-003 network net: no lease"


def test_version(weft, recording, tmp_path):
    code, out, _ = weft("version", "net")
    assert code == 0
    assert [line.split(maxsplit=2) for line in out.splitlines()] == [
        ["PLUGIN", "PATH", "VERSIONS"],
        ["one", f"{recording.bin_dir}/one", "0.3.1, 0.4.0, 1.0.0, 1.1.0"],
    ]
    configure(tmp_path, cniVersion="0.1.0")
    code, out, err = weft("version", "net", "-o", "json")
    assert (code, json.loads(err)["code"], json.loads(err)["seen"]) == (1, "CNI-003", "one does not speak 0.1.0")
    assert json.loads(out)["plugins"][0]["supportedVersions"] == ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]
    recording.does("one", "VERSION", "exit 3")
    assert "exit status 3" in said(*weft("version", "net"))
