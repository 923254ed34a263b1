"""The runtime library: networks from directories, plugins that record their calls, and the cache."""

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.kernel.recording import Recording
from tests.support.waiting import in_time
from weft.cni.runtime import execute
from weft.cni.runtime.library import Cache, CniError, Programs, Runtime, RuntimeConf, load, load_all, parse_list
from weft.model.value import replace

CONF = RuntimeConf(container_id="some-container-id", netns="/netns", ifname="some-eth0", args=(("FOO", "BAR"),))
TYPES = ("one", "two", "three")


def conflist(name="some-list", version="1.1.0", types=TYPES, **keys):
    plugins = [{"type": each, "capabilities": {"portMappings": True}} for each in types]
    return json.dumps({"name": name, "cniVersion": version, "plugins": plugins, **keys})


def network(name="some-list", version="1.1.0", types=TYPES, **keys):
    return parse_list(conflist(name, version, types, **keys).encode())


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path, TYPES)


@pytest.fixture
def said():
    """What plugins that succeed say on stderr."""
    return []


@pytest.fixture
def programs(recording, said):
    return Programs(paths=[str(recording.bin_dir)], env=recording.env, timeout=20, stderr=said.append)


@pytest.fixture
def runtime(tmp_path, programs):
    return Runtime(run=programs, cache=Cache(directory=tmp_path / "cache"))


@pytest.fixture
def results(tmp_path) -> Path:
    return tmp_path / "cache" / "results"


def failed(call) -> CniError:
    with pytest.raises(CniError) as caught:
        call()
    return caught.value


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


class TestLoading:
    """A network by name from a directory."""

    @pytest.fixture
    def directory(self, tmp_path):
        return tmp_path / "net.d"

    @pytest.mark.spec("cni.md L1")
    def test_a_list(self, directory):
        put(directory / "50-x.conflist", conflist(disableCheck=True))
        found = load(directory, "some-list")
        assert (len(found.network.plugins), found.network.disable_check) == (3, True)
        assert (found.path, found.broken) == (directory / "50-x.conflist", ())

    @pytest.mark.spec("cni.md L2", "cni.md L3", cases="conf")
    @pytest.mark.spec("cni.md L4", cases="json")
    @pytest.mark.parametrize("ending", ["conf", "json"])
    def test_a_single_one_counts_where_no_list_has_the_name(self, directory, ending):
        put(directory / f"49-y.{ending}", '{"name": "some-list", "type": "one"}')
        assert [plugin.type for plugin in load(directory, "some-list").network.plugins] == ["one"]
        put(directory / "50-x.conflist", conflist())
        assert len(load(directory, "some-list").network.plugins) == 3

    @pytest.mark.spec("cni.md L5", "cni.md L6", "cni.md L10")
    def test_no_configuration_at_all(self, directory):
        assert str(failed(lambda: load(directory, "n"))) == f"no net configurations found in {directory}"
        put(directory / "50-x.yaml", conflist("n"))
        put(directory / "50-x.conflist.bak", conflist("n"))
        put(directory / "nested" / "50-x.conflist", conflist("n"))
        (directory / "directory.conflist").mkdir()
        assert str(failed(lambda: load(directory, "n"))) == f"no net configurations found in {directory}"

    @pytest.mark.spec("cni.md L7")
    def test_no_such_name(self, directory):
        put(directory / "50-x.conflist", conflist("other"))
        assert str(failed(lambda: load(directory, "n"))) == f'no net configuration with name "n" in {directory}'

    @pytest.mark.spec("cni.md L8", "cni.md L9")
    def test_a_broken_file_hides_no_other(self, directory):
        put(directory / "00-bad.conflist", "{")
        put(directory / "10-good.conflist", conflist())
        put(directory / "99-bad.conflist", "{")
        found = load(directory, "some-list")
        assert found.path.name == "10-good.conflist"
        [broken] = found.broken
        assert broken.startswith(f"{directory}/00-bad.conflist: error parsing configuration list: ")
        wanted = failed(lambda: load(directory, "other"))
        assert wanted.msg == f'no net configuration with name "other" in {directory}'
        assert wanted.details.count("error parsing configuration list: ") == 2

    def test_a_directory_or_file_that_cannot_be_read_is_no_missing_one(self, tmp_path, directory):
        put(tmp_path / "file", "")
        assert failed(lambda: load(tmp_path / "file", "n")).msg == f"error reading {tmp_path}/file: Not a directory"
        directory.mkdir()
        (directory / "50-x.conflist").symlink_to("nowhere")
        assert "error reading" in failed(lambda: load(directory, "n")).details

    @pytest.mark.spec("cni.md L12")
    def test_drop_ins_are_left_out_where_the_list_says_so(self, directory):
        put(directory / "some-list" / "a.conf", '{"type": "extra"}')
        put(directory / "50-x.conflist", conflist(loadOnlyInlinedPlugins=True))
        assert len(load(directory, "some-list").network.plugins) == 3

    @pytest.mark.spec("cni.md L13", "cni.md L29")
    def test_drop_ins_come_in_the_order_of_their_names(self, directory):
        for name in ("b", "a"):
            put(directory / "some-list" / f"{name}.conf", json.dumps({"type": name}))
        put(directory / "some-list" / "c.conflist", "{}")
        put(directory / "50-x.conflist", conflist(types=["one"]))
        assert [plugin.type for plugin in load(directory, "some-list").network.plugins] == ["one", "a", "b"]

    @pytest.mark.spec("cni.md L15", "cni.md L16", "cni.md L17")
    def test_what_the_drop_in_directory_may_be(self, directory):
        put(directory / "50-x.conflist", '{"name": "some-list"}')
        assert "no plugin configs found" in str(failed(lambda: load(directory, "some-list")))
        put(directory / "some-list" / "a.conf", '{"type": "extra"}')
        assert [plugin.type for plugin in load(directory, "some-list").network.plugins] == ["extra"]
        (directory / "some-list" / "a.conf").unlink()
        put(directory / "50-x.conflist", conflist(types=["one"]))
        assert len(load(directory, "some-list").network.plugins) == 1

    def test_a_name_does_not_lead_out_of_the_directory(self, tmp_path, directory):
        put(tmp_path / "outside" / "a.conf", '{"type": "extra"}')
        put(directory / "50-x.conflist", conflist("../outside", types=["one"]))
        assert len(load(directory, "../outside").network.plugins) == 1

    def test_all_of_a_directory(self, directory):
        put(directory / "00-bad.conflist", "{")
        put(directory / "10-good.conflist", conflist())
        (_, bad), (path, good) = load_all(directory)
        assert isinstance(bad, CniError)
        assert (path.name, good.name) == ("10-good.conflist", "some-list")


@pytest.mark.spec("cni.md X1")
def test_runtime_config_is_what_a_plugin_has_declared(runtime, recording):
    conf = RuntimeConf(container_id="c", netns="/n", ifname="eth0", capability_args={"portMappings": [1], "mac": "x"})
    runtime.add(network(), conf)
    assert recording.conf("runtimeConfig") == [{"portMappings": [1]}] * 3


@pytest.mark.spec("cni.md X3")
def test_add(runtime, recording):
    outcome = runtime.add(network(), CONF)
    assert recording.asked == ["ADD one", "ADD two", "ADD three"]
    assert recording.conf("prevResult") == [
        None,
        {"cniVersion": "1.1.0", "interfaces": [{"name": "one"}]},
        {"cniVersion": "1.1.0", "interfaces": [{"name": "two"}]},
    ]
    assert [(call.conf["name"], call.conf["cniVersion"]) for call in recording.calls] == [("some-list", "1.1.0")] * 3
    env = {name: value for name, value in recording.calls[0].env.items() if name.startswith("CNI_")}
    assert env == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "some-container-id",
        "CNI_NETNS": "/netns",
        "CNI_IFNAME": "some-eth0",
        "CNI_ARGS": "FOO=BAR",
        "CNI_PATH": str(recording.bin_dir),
    }
    assert [interface.name for interface in outcome.result.interfaces] == ["three"]


@pytest.mark.spec("cni.md X4")
def test_add_is_remembered(runtime, results):
    added = network()
    runtime.add(added, CONF)
    file = results / "some-list-some-container-id-some-eth0"
    assert json.loads(file.read_text())["kind"] == "cniCacheV1"
    assert (file.stat().st_mode & 0o777, results.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in results.iterdir()] == [file.name]
    entry = runtime.cache.entry("some-list", "some-container-id", "some-eth0")
    assert (entry.config, entry.conf) == (added.raw, CONF)


@pytest.mark.spec("cni.md X5")
def test_add_that_fails_is_not_remembered(runtime, recording, results):
    recording.does("two", "ADD", """echo '{"code": 100, "msg": "plugin error: banana"}'; exit 1""")
    error = failed(lambda: runtime.add(network(), CONF))
    assert (error.code, str(error)) == (100, 'plugin type="two" failed (add): plugin error: banana')
    assert recording.asked == ["ADD one", "ADD two"]
    assert not results.exists()


@pytest.mark.spec("cni.md X6")
def test_add_with_a_plugin_that_is_not_there(runtime, recording):
    (recording.bin_dir / "a-directory").mkdir()
    for name, words in (
        ("does-not-exist", f'failed to find plugin "does-not-exist" in path [{recording.bin_dir}]'),
        ("a-directory", f'failed to find plugin "a-directory" in path [{recording.bin_dir}]'),
        ("../one", "invalid plugin name: ../one"),
    ):
        error = failed(lambda name=name: runtime.add(network(types=["one", name]), CONF))
        assert str(error) == f'plugin type="{name}" failed (add): {words}'


@pytest.mark.spec("cni.md X7")
def test_add_with_a_bad_name_runs_nothing(runtime, recording):
    error = failed(lambda: runtime.add(network(), RuntimeConf(container_id="a b", netns="/n", ifname="eth0")))
    assert (error.code, error.msg) == (4, 'plugin type="one" failed (add): invalid characters in containerID')
    assert recording.calls == []


@pytest.mark.spec("cni.md X8")
def test_add_that_cannot_be_remembered_is_undone(runtime, recording, tmp_path):
    put(tmp_path / "cache", "a file")
    error = failed(lambda: runtime.add(network(), CONF))
    assert error.msg.startswith('failed to set network "some-list" cached result: ')
    assert error.details == "the attachment has been undone"
    assert recording.asked[3:] == ["DEL three", "DEL two", "DEL one"]
    assert recording.conf("prevResult")[3:] == [{"cniVersion": "1.1.0", "interfaces": [{"name": "three"}]}] * 3


def test_add_that_can_neither_be_remembered_nor_undone_says_both(runtime, recording, tmp_path):
    put(tmp_path / "cache", "a file")
    recording.does("two", "DEL", "echo stuck >&2; exit 1")
    error = failed(lambda: runtime.add(network(version="0.3.1"), CONF))
    assert error.details == (
        'the attachment is still there, because plugin type="two" failed (delete): '
        'netplugin failed: "stuck": exit status 1'
    )
    assert recording.conf("prevResult")[3:] == [None, None]


def test_an_attachment_whose_file_would_be_anothers_is_refused(runtime, recording):
    runtime.add(network("a-b"), RuntimeConf(container_id="c", netns="/n", ifname="eth0"))
    error = failed(lambda: runtime.add(network("a"), RuntimeConf(container_id="b-c", netns="/n", ifname="eth0")))
    assert "a-b-c-eth0 holds another attachment" in error.msg
    runtime.delete(network("a"), RuntimeConf(container_id="b-c", netns="/n", ifname="eth0"))
    assert [entry.network for entry in runtime.cache.entries().entries] == ["a-b"]


@pytest.mark.spec("cni.md X9", "cni.md X10")
def test_check_that_asks_nobody(runtime, recording):
    error = failed(lambda: runtime.check(network(version="0.3.1"), CONF))
    assert str(error) == 'configuration version "0.3.1" does not support the CHECK command'
    runtime.check(network(disableCheck=True), CONF)
    assert recording.calls == []


@pytest.mark.spec("cni.md X11")
def test_check(runtime, recording):
    runtime.add(network(), CONF)
    runtime.check(network(), CONF)
    assert recording.asked[3:] == ["CHECK one", "CHECK two", "CHECK three"]
    assert recording.conf("prevResult")[3:] == [{"cniVersion": "1.1.0", "interfaces": [{"name": "three"}]}] * 3


@pytest.mark.spec("cni.md X12", "cni.md X13", "cni.md X14")
def test_check_of_what_the_cache_says(runtime, recording, results):
    file = results / "some-list-some-container-id-some-eth0"
    put(file, "adfadsfasdfasfdsafaf")
    error = failed(lambda: runtime.check(network(), CONF))
    assert error.msg.startswith('failed to get network "some-list" cached result: ')
    put(file, '{"cniVersion": "0.4567.0", "ips": [{"version": "4", "address": "10.1.2.3/24"}], "dns": {}}')
    error = failed(lambda: runtime.check(network(), CONF))
    assert error.msg.endswith('unsupported CNI result version "0.4567.0"')
    assert recording.calls == []
    put(file, '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}], "dns": {}}')
    runtime.check(network(), CONF)
    assert recording.conf("prevResult")[0] == {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}


@pytest.mark.spec("cni.md X15")
@pytest.mark.spec("cni.md X18", cases=("0.4.0", "1.1.0"))
@pytest.mark.parametrize("version", ["0.4.0", "1.1.0"])
def test_delete(runtime, recording, results, version):
    runtime.add(network(version=version), CONF)
    runtime.delete(network(version=version), CONF)
    assert recording.asked[3:] == ["DEL three", "DEL two", "DEL one"]
    assert [previous["interfaces"] for previous in recording.conf("prevResult")[3:]] == [[{"name": "three"}]] * 3
    assert list(results.iterdir()) == []
    runtime.delete(network(version=version), CONF)
    assert recording.conf("prevResult")[6:] == [None] * 3


@pytest.mark.spec("cni.md X16")
def test_delete_of_an_old_version_has_no_result(runtime, recording):
    runtime.add(network(version="0.3.1"), CONF)
    runtime.delete(network(version="0.3.1"), CONF)
    assert recording.conf("prevResult")[3:] == [None] * 3


@pytest.mark.spec("cni.md X17")
@pytest.mark.parametrize("content", ["adfadsfasdfasfdsafaf", '{"cniVersion": "0.4567.0"}'])
def test_delete_with_a_cache_that_is_of_no_use(runtime, recording, results, content):
    put(results / "some-list-some-container-id-some-eth0", content)
    runtime.delete(network(), CONF)
    assert recording.conf("prevResult") == [None] * 3
    assert list(results.iterdir()) == []


@pytest.mark.spec("cni.md X19")
def test_delete_that_fails_keeps_what_is_remembered(runtime, recording, results):
    runtime.add(network(), CONF)
    recording.does("two", "DEL", """echo '{"code": 11, "msg": "banana"}'; exit 1""")
    error = failed(lambda: runtime.delete(network(), CONF))
    assert (error.code, str(error)) == (11, 'plugin type="two" failed (delete): banana')
    assert recording.asked[3:] == ["DEL three", "DEL two"]
    assert len(list(results.iterdir())) == 1


@pytest.mark.spec("cni.md X20")
def test_a_bare_result_of_old_is_used_and_no_more(runtime, recording, results):
    put(results / "some-list-some-container-id-some-eth0", '{"cniVersion": "1.1.0", "ips": []}')
    runtime.check(network(), CONF)
    assert recording.conf("prevResult")[0] == {"cniVersion": "1.1.0", "ips": []}
    assert runtime.cache.entries().entries == ()
    assert "has wrong kind" in failed(lambda: runtime.cache.entry("some-list", "some-container-id", "some-eth0")).msg


@pytest.mark.spec("cni.md X21")
def test_gc_where_it_is_switched_off(runtime, recording):
    runtime.add(network(), CONF)
    runtime.collect_garbage(network(disableGC=True), [])
    assert len(recording.calls) == 3


@pytest.mark.spec("cni.md X22")
def test_gc_leaves_a_valid_attachment_alone(runtime, recording):
    runtime.add(network(), CONF)
    runtime.collect_garbage(network(), [("some-container-id", "some-eth0")])
    assert recording.asked[3:] == ["GC one", "GC two", "GC three"]
    listed = [{"containerID": "some-container-id", "ifname": "some-eth0"}]
    assert recording.conf("cni.dev/valid-attachments")[3:] == [listed] * 3
    assert recording.calls[3].env["CNI_CONTAINERID"] == recording.calls[3].env["CNI_NETNS"] == ""


@pytest.mark.spec("cni.md X23")
@pytest.mark.parametrize("valid", [[], None])
def test_gc_ends_what_is_not_valid(runtime, recording, results, valid):
    conf = RuntimeConf(
        container_id="c", netns="/n", ifname="eth0", args=(("K", "V"),), capability_args={"portMappings": [1]}
    )
    runtime.add(network("other"), CONF)
    runtime.add(network(), conf)
    runtime.collect_garbage(network(), valid)
    assert recording.asked[6:] == ["DEL three", "DEL two", "DEL one", "GC one", "GC two", "GC three"]
    ended = recording.calls[6]
    assert (ended.env["CNI_NETNS"], ended.env["CNI_ARGS"], ended.conf["runtimeConfig"]) == (
        "/n",
        "K=V",
        {"portMappings": [1]},
    )
    assert recording.conf("cni.dev/valid-attachments")[9:] == [valid] * 3
    assert [path.name for path in results.iterdir()] == ["other-some-container-id-some-eth0"]


def test_gc_tells_all_that_failed(runtime, recording):
    runtime.add(network(), CONF)
    recording.does("three", "DEL", """echo '{"code": 100, "msg": "a"}'; exit 1""")
    recording.does("one", "GC", """echo '{"code": 7, "msg": "b"}'; exit 1""")
    assert str(failed(lambda: runtime.collect_garbage(network(), []))).splitlines() == [
        'failed to delete stale attachment some-container-id some-eth0: plugin type="three" failed (delete): a',
        "failed to GC plugin one: b",
    ]
    assert failed(lambda: runtime.collect_garbage(network(), [("some-container-id", "some-eth0")])).code == 7


def test_gc_says_when_it_cannot_tell_what_is_attached(runtime, recording, results):
    put(results.parent / "results", "a file")
    error = failed(lambda: runtime.collect_garbage(network(), []))
    assert str(error) == f"cannot tell what is attached: {results}: Not a directory"
    assert recording.asked == ["GC one", "GC two", "GC three"]


def test_a_torn_entry_is_told(runtime, results):
    runtime.add(network(), CONF)
    put(results / "some-list-c2-eth0", '{"kind":"cniCac')
    put(results / ".weft-0123", "what a crash has left")
    put(results / "nameless", '{"kind":"cniCacheV1"}')
    listing = runtime.cache.entries()
    assert [entry.conf.container_id for entry in listing.entries] == ["some-container-id"]
    [line] = listing.unreadable
    assert line.startswith(f"{results}/some-list-c2-eth0: ")


@pytest.mark.spec("cni.md X24")
def test_status(runtime, recording):
    recording.does("two", "STATUS", """echo '{"code": 50, "msg": "no lease"}'; exit 1""")
    assert failed(lambda: runtime.status(network())).code == 50
    assert recording.asked == ["STATUS one", "STATUS two"]
    assert recording.calls[0].conf == {
        "type": "one",
        "capabilities": {"portMappings": True},
        "name": "some-list",
        "cniVersion": "1.1.0",
    }


@pytest.mark.spec("cni.md X25")
def test_what_a_network_of_an_older_version_is_not_asked(runtime, recording):
    runtime.add(network(version="1.0.0"), CONF)
    runtime.status(network(version="1.0.0"))
    runtime.collect_garbage(network(version="1.0.0"), [])
    assert recording.asked[3:] == ["DEL three", "DEL two", "DEL one"]


@pytest.mark.spec("cni.md X26")
def test_validate(runtime, recording):
    assert runtime.validate(network()) == {"portMappings"}
    recording.does("three", "VERSION", "echo broken; exit 1")
    error = failed(lambda: runtime.validate(network(version="0.1.0", types=["one", "gone", "three"])))
    assert error.msg.startswith('[plugin one does not support config version "0.1.0" failed to find plugin "gone" in')
    assert error.msg.endswith("]")
    assert "broken" in error.msg
    assert runtime.versions("one") == ("0.3.1", "0.4.0", "1.0.0", "1.1.0")


@pytest.mark.spec("cni.md X27")
def test_two_attachments_of_one_container(runtime, results):
    for ifname in ("eth0", "eth1"):
        runtime.add(network(), RuntimeConf(container_id="c-1", netns="/n", ifname=ifname))
    runtime.add(network(), RuntimeConf(container_id="c", netns="/n", ifname="eth0"))
    assert len(list(results.iterdir())) == 3
    assert [entry.conf.ifname for entry in runtime.cache.entries("c-1").entries] == ["eth0", "eth1"]
    assert len(runtime.cache.entries().entries) == 3


def test_no_directory_is_no_attachment(runtime):
    assert runtime.cache.entries().entries == runtime.cache.entries().unreadable == ()


@pytest.mark.spec("cni.md X29")
@pytest.mark.parametrize(
    "stdout, words",
    [("null", ""), ("{}", ""), ("", "failed to unmarshal raw result"), ('{"cniVersion":"7.0.0"}', "7.0")],
)
def test_what_add_may_print(runtime, recording, stdout, words):
    recording.does("one", "ADD", f"echo '{stdout}'")
    alone = network(types=["one"])
    if words:
        assert words in failed(lambda: runtime.add(alone, CONF)).msg
    else:
        assert runtime.add(alone, CONF).obj == {"cniVersion": "1.1.0"}


@pytest.mark.spec("cni.md X30")
@pytest.mark.parametrize(
    "shell, words",
    [
        ("echo boo >&2", 'netplugin failed: "boo": exit status 3'),
        ("", "netplugin failed with no error message: exit status 3"),
        ("echo hello", 'netplugin failed but error parsing its diagnostic message "hello'),
        ("""echo '{"code": 7, "msg": "m"}'""", "m"),
    ],
)
def test_how_a_plugin_may_fail(runtime, recording, shell, words):
    recording.does("one", "STATUS", f"{shell}\nexit 3")
    assert failed(lambda: runtime.status(network())).msg.startswith(words)


@pytest.mark.spec("cni.md X31")
def test_what_a_plugin_that_succeeds_has_to_say_is_passed_on(runtime, recording, said):
    recording.does("one", "STATUS", "echo hey >&2")
    runtime.status(network())
    assert said == [b"hey\n"]


@pytest.mark.spec("cni.md X32")
def test_a_plugin_that_takes_too_long_or_is_killed(recording, runtime, programs):
    hasty = Runtime(run=replace(programs, timeout=0.2))
    recording.does("one", "STATUS", "exec sleep 20")
    assert (
        failed(lambda: hasty.status(network())).msg == "netplugin failed with no error message: no answer within 0.2 s"
    )
    recording.does("one", "STATUS", "kill -9 $$")
    assert failed(lambda: runtime.status(network())).msg == "netplugin failed with no error message: signal: Killed"


@pytest.mark.parametrize("where", ["", " >&2"], ids=["its answer", "its log"])
def test_a_plugin_that_prints_for_ever_is_ended(runtime, recording, where):
    recording.does("one", "STATUS", f"exec yes{where}")
    assert failed(lambda: runtime.status(network())).msg.endswith("it printed more than 4 MiB")


def test_what_a_plugin_leaves_with_its_pipes_is_not_waited_for(recording):
    pid = recording.bin_dir / "pid"
    script = recording.bin_dir / "leaves"
    script.write_text(f"#!/bin/sh\ncat\nsleep 300 &\necho $! >{pid}\necho hey >&2\n")
    script.chmod(0o755)
    try:
        ran = execute.execute(str(script), recording.env, b"x" * (1 << 20), timeout=None)
        assert (ran.exit, ran.stdout, ran.stderr, ran.ending) == (0, b"x" * (1 << 20), b"hey\n", "")
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM], ids=["an older kernel", "a filter"])
def test_without_descriptors_of_processes_a_plugin_runs_and_ends_as_with_them(recording, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    scripts = {
        "quick": ("echo hey; exit 3", None, (3, b"hey\n", "")),
        "shut": ("exec >&- 2>&-; sleep 0.3; exit 4", None, (4, b"", "")),
        "killed": ("kill -9 $$", None, (-9, b"", "signal: Killed")),
        "slow": ("exec sleep 300", 0.5, (1, b"", "no answer within 0.5 s")),
        "leaves": ("sleep 300 & echo $!; exit 0", None, None),
    }
    for name, (words, timeout, expected) in scripts.items():
        script = recording.bin_dir / name
        script.write_text(f"#!/bin/sh\n{words}\n")
        script.chmod(0o755)
        ran = execute.execute(str(script), recording.env, b"", timeout=timeout)
        if expected is None:
            os.kill(int(ran.stdout), signal.SIGKILL)
            assert (ran.exit, ran.ending) == (0, "")
        else:
            assert (ran.exit, ran.stdout, ran.ending) == expected, name


def test_a_plugin_that_is_being_written_is_tried_again(runtime, recording):
    # The kernel refuses a binary that is open for writing; of a script it looks at the interpreter.
    busy = recording.bin_dir / "busy"
    busy.write_bytes(Path("/bin/true").read_bytes())
    busy.chmod(0o755)
    fd = os.open(busy, os.O_WRONLY)
    started = time.monotonic()
    threading.Timer(0.2, os.close, [fd]).start()
    runtime.status(network(types=["busy"]))
    assert time.monotonic() - started > 0.9
    assert in_time(started, 5)


def test_a_program_that_cannot_be_started(runtime, recording):
    (recording.bin_dir / "two").chmod(0o644)
    words = f"netplugin failed with no error message: {recording.bin_dir}/two: Permission denied"
    assert failed(lambda: runtime.status(network())).msg == words


def test_by_default_stderr_is_the_callers(recording, capfd):
    recording.does("one", "STATUS", "echo hey >&2")
    Runtime(run=Programs(paths=[str(recording.bin_dir)], env=recording.env)).status(network())
    assert capfd.readouterr().err == "hey\n"


def test_no_paths(recording):
    nowhere = Programs(paths=[""], env=recording.env)
    assert failed(lambda: nowhere.find("one")).msg == "no paths provided"
    assert failed(lambda: nowhere.find("")).msg == "no plugin name provided"


def test_the_references_plugins_by_the_same_library(tmp_path):
    runtime = Runtime(run=Programs(paths=["/usr/lib/cni"], env={}), cache=Cache(directory=tmp_path))
    assert runtime.versions("bridge") == ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0")
    assert "does not support config version" in failed(lambda: runtime.validate(network(types=["bridge"]))).msg
