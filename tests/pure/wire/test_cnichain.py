"""What a runtime asks of which plugin, in which order: the chains, with plugins that only answer."""

import json

import pytest

from weft.wire import cni, cnichain, cnilist
from weft.wire.cni import CniError, Ran
from weft.wire.cnichain import RuntimeConf

CONF = RuntimeConf(
    container_id="some-container-id", netns="/netns", ifname="some-eth0", args=(("FOO", "BAR"), ("A", "B"))
)


def network(version="1.1.0", types=("one", "two", "three"), **keys):
    plugins = [{"type": name, "capabilities": {name: True}} for name in types]
    return cnilist.parse_list(
        json.dumps({"name": "some-list", "cniVersion": version, "plugins": plugins, **keys}).encode()
    )


class Plugins:
    """Answers steps: by default each ADD with a result that names the plugin. Remembers what was asked."""

    def __init__(self, **answers):
        self.steps = []
        self.answers = answers

    def drive(self, chain):
        try:
            step = next(chain)
            while True:
                self.steps.append(step)
                answer = self.answers.get(step.plugin, self.result(step))
                step = chain.throw(answer) if isinstance(answer, CniError) else chain.send(answer)
        except StopIteration as end:
            return end.value

    def result(self, step):
        add = {"interfaces": [{"name": step.plugin}]}
        return Ran(exit=0, stdout=json.dumps(add).encode() if step.variables["CNI_COMMAND"] == "ADD" else b"")

    @property
    def asked(self):
        return [step.plugin for step in self.steps]

    def sent(self, key):
        return [json.loads(step.stdin).get(key) for step in self.steps]


def failing(code=999, msg="plugin error: banana"):
    return Ran(exit=1, stdout=CniError(code, msg).render())


def test_add_passes_each_result_on_and_returns_the_last():
    plugins = Plugins()
    outcome = plugins.drive(cnichain.add(network(), CONF))
    assert plugins.asked == ["one", "two", "three"]
    assert plugins.sent("prevResult") == [
        None,
        {"cniVersion": "1.1.0", "interfaces": [{"name": "one"}]},
        {"cniVersion": "1.1.0", "interfaces": [{"name": "two"}]},
    ]
    assert plugins.sent("name") == ["some-list"] * 3
    assert outcome.version == "1.1.0"
    assert [interface.name for interface in outcome.result.interfaces] == ["three"]
    assert plugins.steps[0].variables == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "some-container-id",
        "CNI_NETNS": "/netns",
        "CNI_IFNAME": "some-eth0",
        "CNI_ARGS": "FOO=BAR;A=B",
    }


def test_add_of_no_plugins_makes_nothing():
    assert Plugins().drive(cnichain.add(cnilist.parse_list(b'{"name": "n"}'), CONF)).obj == {}


def test_add_stops_where_it_fails_and_says_where():
    plugins = Plugins(two=failing(code=11))
    with pytest.raises(CniError) as caught:
        plugins.drive(cnichain.add(network(), CONF))
    assert (caught.value.code, str(caught.value)) == (11, 'plugin type="two" failed (add): plugin error: banana')
    assert plugins.asked == ["one", "two"]


@pytest.mark.parametrize(
    "name, conf, code, seen",
    [
        ("n", RuntimeConf(container_id="", netns="", ifname="a"), 3, "missing containerID"),
        ("n", RuntimeConf(container_id="a b", netns="", ifname="a"), 4, "invalid characters in containerID; a b"),
        ("", CONF, 7, "missing network name:"),
        ("a b", CONF, 7, "invalid characters found in network name; a b"),
        ("n", RuntimeConf(container_id="a", netns="", ifname=""), 4, "interface name is empty"),
        ("n", RuntimeConf(container_id="a", netns="", ifname=".."), 4, "interface name is . or .."),
        (
            "n",
            RuntimeConf(container_id="a", netns="", ifname="1234567890123456"),
            4,
            "interface name is too long; interface name should be less than 16 characters",
        ),
        (
            "n",
            RuntimeConf(container_id="a", netns="", ifname="a:b"),
            4,
            "interface name contains / or : or whitespace characters",
        ),
    ],
)
@pytest.mark.spec("cni.md X7")
def test_names_that_are_refused_before_anything_runs(name, conf, code, seen):
    plugins = Plugins()
    with pytest.raises(CniError) as caught:
        plugins.drive(cnichain.add(network(types=("noop",), name=name), conf))
    assert (caught.value.code, str(caught.value)) == (code, f'plugin type="noop" failed (add): {seen}')
    assert plugins.steps == []


def test_delete_goes_backwards_with_the_same_result_for_all():
    plugins = Plugins()
    plugins.drive(cnichain.delete(network(), CONF, {"ips": []}))
    assert plugins.asked == ["three", "two", "one"]
    assert plugins.sent("prevResult") == [{"ips": []}] * 3
    plugins = Plugins(two=CniError(999, "not found"))
    with pytest.raises(CniError, match=r'^plugin type="two" failed \(delete\): not found$'):
        plugins.drive(cnichain.delete(network(), CONF, None))
    assert plugins.asked == ["three", "two"]
    assert plugins.sent("prevResult") == [None, None]


def test_check_goes_forward_and_its_errors_stay_as_they_are():
    plugins = Plugins(two=failing())
    with pytest.raises(CniError, match=r"^plugin error: banana$"):
        plugins.drive(cnichain.check(network(), CONF, {"ips": []}))
    assert (plugins.asked, plugins.sent("prevResult")) == (["one", "two"], [{"ips": []}] * 2)
    Plugins().drive(cnichain.check(network(), CONF, {"ips": []}))


# What is set and empty hides what the environment of the runtime itself may have.
OF_NO_ATTACHMENT = {"CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": "", "CNI_ARGS": ""}


def test_gc_asks_all_of_them_and_tells_what_failed():
    plugins = Plugins(one=failing(), two=CniError(999, "gone"))
    failed = plugins.drive(cnichain.collect_garbage(network(), [("c1", "eth0")]))
    assert [str(error) for error in failed] == [
        "failed to GC plugin one: plugin error: banana",
        "failed to GC plugin two: gone",
    ]
    listed = [{"containerID": "c1", "ifname": "eth0"}]
    assert plugins.sent("cni.dev/valid-attachments") == plugins.sent("cni.dev/attachments") == [listed] * 3
    assert [step.variables for step in plugins.steps] == [OF_NO_ATTACHMENT | {"CNI_COMMAND": "GC"}] * 3
    plugins = Plugins()
    assert plugins.drive(cnichain.collect_garbage(network(), None)) == []
    assert plugins.sent("cni.dev/valid-attachments") == [None] * 3


def test_status_stops_at_the_first_that_could_not_serve():
    plugins = Plugins(two=failing(50, "no lease"))
    with pytest.raises(CniError) as caught:
        plugins.drive(cnichain.status(network()))
    assert (caught.value.code, plugins.asked) == (50, ["one", "two"])
    plugins = Plugins()
    plugins.drive(cnichain.status(network()))
    assert [step.variables for step in plugins.steps] == [OF_NO_ATTACHMENT | {"CNI_COMMAND": "STATUS"}] * 3


def answer(text):
    return Ran(exit=0, stdout=text.encode())


@pytest.mark.spec("cni.md V7")
@pytest.mark.parametrize(
    "text, versions",
    [
        ('{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}', ("0.4.0", "1.0.0")),
        ('{"cniVersion":"0.2.0"}', ("0.1.0", "0.2.0")),
        ('{"cniVersion":"0.2.0","supportedVersions":[]}', ("0.1.0", "0.2.0")),
    ],
)
def test_versions_that_a_plugin_speaks(text, versions):
    plugins = Plugins(one=answer(text))
    assert plugins.drive(cnichain.versions("one")) == versions
    assert plugins.steps[0].variables == {
        "CNI_COMMAND": "VERSION",
        "CNI_CONTAINERID": "",
        "CNI_NETNS": "dummy",
        "CNI_IFNAME": "dummy",
        "CNI_ARGS": "",
        "CNI_PATH": "dummy",
    }
    assert plugins.steps[0].stdin == b'{"cniVersion": "1.1.0"}'


@pytest.mark.spec("cni.md V7")
@pytest.mark.parametrize(
    "text, seen",
    [
        ("{}", "missing field cniVersion"),
        ('{"cniVersion":"0.3.0"}', "missing field supportedVersions"),
        ('{"cniVersion":3}', "cannot use an integer as cniVersion"),
    ],
)
def test_an_answer_about_versions_that_is_none(text, seen):
    with pytest.raises(CniError, match=f"^decoding version info: {seen}"):
        cnichain.read_versions(text.encode())


def test_a_plugin_from_before_there_were_versions():
    assert Plugins(one=failing(4, "unknown CNI_COMMAND: VERSION")).drive(cnichain.versions("one")) == ("0.1.0",)
    with pytest.raises(CniError, match="banana"):
        Plugins(one=failing()).drive(cnichain.versions("one"))


@pytest.mark.spec("cni.md X26")
def test_validation_tells_all_that_is_wrong():
    good = answer('{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}')
    assert Plugins(one=good, two=good, three=good).drive(cnichain.validate(network())) == {"one", "two", "three"}
    old = answer('{"cniVersion":"1.1.0","supportedVersions":["0.1.0"]}')
    with pytest.raises(CniError) as caught:
        Plugins(
            one=old, two=CniError(999, 'failed to find plugin "two" in path [/x]'), three=failing(msg="broken")
        ).drive(cnichain.validate(network()))
    assert caught.value.msg == (
        '[plugin one does not support config version "1.1.0" failed to find plugin "two" in path [/x] broken]'
    )
    assert Plugins(one=old).drive(cnichain.validate(network("", ["one"]))) == {"one"}


@pytest.mark.spec("cni.md X29")
@pytest.mark.parametrize("text", ["null", "{}", '{"cniVersion": ""}'])
def test_a_result_without_a_version_has_that_of_the_request(text):
    assert cnichain.read_outcome(text.encode(), "1.0.0").obj == {"cniVersion": "1.0.0"}


@pytest.mark.spec("cni.md X29")
@pytest.mark.parametrize(
    "text, seen",
    [
        ("", "failed to unmarshal raw result: "),
        ('{"cniVersion": 1}', "failed to unmarshal raw result: "),
        ('{"cniVersion": "7.0.0"}', 'unsupported CNI result version "7.0.0"'),
    ],
)
def test_a_result_that_is_none(text, seen):
    with pytest.raises(CniError, match=f"^{seen}") as caught:
        cnichain.read_outcome(text.encode(), "1.0.0")
    assert caught.value.code == 999


@pytest.mark.spec("cni.md X30")
@pytest.mark.parametrize(
    "ran, seen",
    [
        (Ran(exit=3), "netplugin failed with no error message: exit status 3"),
        pytest.param(
            Ran(exit=1, ending="signal: Killed"),
            "netplugin failed with no error message: signal: Killed",
            marks=pytest.mark.spec("cni.md X32"),
        ),
        (Ran(exit=3, stderr=b"boo\n"), 'netplugin failed: "boo": exit status 3'),
        (Ran(exit=3, stdout=b"hello"), 'netplugin failed but error parsing its diagnostic message "hello": '),
        (Ran(exit=3, stdout=b'{"code":7,"msg":"m","details":"d"}'), "m; d"),
        (Ran(exit=3, stdout=b'{"ips":7}'), "netplugin failed but its diagnostic message has neither code nor message"),
    ],
)
def test_what_a_plugin_that_failed_has_said(ran, seen):
    with pytest.raises(CniError) as caught:
        cnichain.raise_for(ran)
    assert str(caught.value).startswith(seen)
    assert caught.value.code == (7 if seen == "m; d" else 999)


def test_an_error_without_a_code_has_that_of_a_failure():
    with pytest.raises(CniError) as caught:
        cnichain.raise_for(Ran(exit=1, stdout=b'{"msg": "m"}'))
    assert (caught.value.code, caught.value.msg) == (999, "m")


RESULT = {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}], "dns": {}}


@pytest.mark.spec("cni.md X13")
def test_a_cached_result_is_converted():
    new = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
    assert cnichain.previous_of(network("1.1.0"), RESULT) == new
    assert cnichain.previous_of(network("0.3.1"), RESULT) == RESULT
    assert cnichain.previous_of(network("0.3.1"), {"ips": []}) == {"ips": [], "cniVersion": "0.3.1"}


@pytest.mark.spec("cni.md X14")
@pytest.mark.parametrize(
    "cached, seen",
    [
        (
            {"cniVersion": "0.4567.0"},
            'failed to convert cached result to config version "1.1.0": unsupported CNI result version "0.4567.0"',
        ),
        ({"cniVersion": 4}, "cannot use an integer as cniVersion"),
    ],
)
def test_a_cached_result_that_cannot_be_converted(cached, seen):
    with pytest.raises(CniError) as caught:
        cnichain.previous_of(network(), cached)
    assert str(caught.value).startswith(seen)
    assert caught.value.code == cni.INTERNAL
