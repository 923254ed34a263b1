"""The frame of all plugins: what is checked before a plugin runs, in which order, and in which words."""

import json
from dataclasses import dataclass, field

import pytest

from weft.cni import registry
from weft.cni.host.host import ClientGone, Request
from weft.cni.install import judging
from weft.cni.sdk import startup
from weft.cni.sdk.startup import Build, Plugin
from weft.cni.serve import plugins
from weft.model.attachment import Attachment
from weft.wire.cni import CniError, versions_from

ENV = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "some-container-id",
    "CNI_NETNS": "/some/netns/path",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "some;extra;args",
    "CNI_PATH": "/some/cni/path",
}
STDIN = b'{ "name":"skel-test", "some": "config", "cniVersion": "9.8.7" }'
ABOUT = "AWESOME PLUGIN"
# A plugin that has no other beside it, and frees nothing.
ALONE = Build(
    find=lambda _: None,
    holder=lambda *_: None,
    free=lambda *_: "",
    free_own=lambda *_: "",
    free_network=lambda *_: 0,
    undo_own=lambda *_: None,
    is_kept=lambda *_: False,
    is_made_since=lambda *_: True,
)


@dataclass
class NoHost:
    """A host that no plugin of these tests uses."""

    same_namespace: bool = False


@dataclass
class Fake:
    """A plugin that remembers its calls."""

    calls: list = field(default_factory=list)
    error: BaseException | None = None
    versions: tuple[str, ...] = ("9.8.7", "10.0.0")
    about: str = ""

    def run(self, env, stdin=STDIN, *, stdin_error="", host=None):
        def verb(name):
            def called(call):
                self.calls.append((name, call))
                if self.error:
                    raise self.error
                return b"result" if name == "ADD" else None

            return called

        plugin = Plugin(
            name="fake",
            add=verb("ADD"),
            delete=verb("DEL"),
            check=verb("CHECK"),
            gc=verb("GC"),
            status=verb("STATUS"),
            versions=self.versions,
            about=self.about,
        )
        request = Request(
            plugin="fake", command=env.get("CNI_COMMAND", ""), env=env, stdin=stdin, stdin_error=stdin_error
        )
        return startup.run(plugin, request, host or NoHost(), build=ALONE)


def without(*names, **changed):
    env = {name: value for name, value in ENV.items() if name.removeprefix("CNI_") not in names}
    return env | {f"CNI_{name}": value for name, value in changed.items()}


def error_of(done):
    assert done.exit == 1
    return json.loads(done.stdout)


def refused(fake, done, code, msg, details=None):
    error = error_of(done)
    assert (error["code"], error["msg"], error.get("details")) == (code, msg, details)
    assert fake.calls == []


@pytest.mark.spec("cni.md F1")
def test_add_calls_add_with_everything_unchanged():
    fake = Fake()
    done = fake.run(ENV)
    assert (done.exit, done.stdout) == (0, b"result")
    [(verb, call)] = fake.calls
    assert verb == "ADD"
    assert (call.container_id, call.netns, call.ifname) == ("some-container-id", "/some/netns/path", "eth0")
    assert (call.args, call.request.env["CNI_PATH"]) == ("some;extra;args", "/some/cni/path")
    assert call.request.stdin == STDIN


def test_del_calls_del_alone_and_prints_nothing():
    fake = Fake()
    done = fake.run(without(COMMAND="DEL"))
    assert (done.exit, done.stdout) == (0, b"")
    assert [verb for verb, _ in fake.calls] == ["DEL"]


@pytest.mark.spec("cni.md F2")
@pytest.mark.parametrize("command", ["CHECK", "DEL", "GC", "STATUS"])
def test_each_verb_calls_its_own_function_alone_and_prints_nothing(command):
    fake = Fake()
    done = fake.run(without(COMMAND=command))
    assert (done.exit, done.stdout) == (0, b"")
    assert [verb for verb, _ in fake.calls] == [command]


@pytest.mark.spec("cni.md F14")
def test_gc_and_status_are_about_no_attachment():
    for command in ("GC", "STATUS"):
        fake = Fake()
        assert fake.run({"CNI_COMMAND": command, "CNI_PATH": "/some/cni/path"}).exit == 0
        [(_, call)] = fake.calls
        assert (call.container_id, call.ifname, call.netns) == ("", "", "")
        refused(fake := Fake(), fake.run({"CNI_COMMAND": command}), 4, "required env variables [CNI_PATH] missing")


def test_a_verb_that_a_plugin_has_nothing_to_do_for_succeeds():
    plugin = Plugin(name="bare", add=lambda _: b"", delete=lambda _: None)
    for command in ("CHECK", "GC", "STATUS"):
        env = without(COMMAND=command)
        stdin = b'{"name":"net","cniVersion":"1.1.0"}'
        done = startup.run(plugin, Request(plugin="bare", command=command, env=env, stdin=stdin), NoHost(), build=ALONE)
        assert (done.exit, done.stdout) == (0, b"")


def test_what_gc_leaves_alone():
    fake = Fake(versions=("1.1.0",))
    listed = [{"containerID": "c1", "ifname": "eth0"}]
    config = {"name": "net", "cniVersion": "1.1.0", "cni.dev/valid-attachments": listed}
    assert fake.run(without(COMMAND="GC"), json.dumps(config).encode()).exit == 0
    [(_, call)] = fake.calls
    assert call.is_valid(Attachment(network="net", container_id="c1", ifname="eth0"))
    assert call.is_valid(Attachment(network="other", container_id="c2", ifname="eth0"))
    assert not call.is_valid(Attachment(network="net", container_id="c1", ifname="eth1"))


@pytest.mark.spec("cni.md F3")
def test_no_command():
    fake = Fake()
    refused(fake, fake.run(without("COMMAND")), 4, "required env variables [CNI_COMMAND] missing")


@pytest.mark.spec("cni.md F4", "flannel.md §10.1/banner")
def test_no_command_and_something_to_say_about_itself():
    done = Fake(about=ABOUT).run({})
    assert (done.exit, done.stdout) == (0, b"")
    assert done.stderr == b"AWESOME PLUGIN\nCNI protocol versions supported: 9.8.7, 10.0.0\n"


@pytest.mark.spec("flannel.md §10.1/environment")
@pytest.mark.spec("cni.md F5", cases="*-CONTAINERID-ADD")
@pytest.mark.spec("cni.md F6", cases="*-NETNS-ADD")
@pytest.mark.spec("cni.md F7", cases="*-IFNAME-ADD")
@pytest.mark.spec("cni.md F8", cases="*-PATH-ADD")
@pytest.mark.spec("cni.md F10", cases="*-NETNS+IFNAME+PATH-ADD")
@pytest.mark.spec("cni.md F11", cases="*-CHECK")
@pytest.mark.parametrize("command", ["ADD", "CHECK"])
@pytest.mark.parametrize(
    "missing", [("CONTAINERID",), ("NETNS",), ("IFNAME",), ("PATH",), ("NETNS", "IFNAME", "PATH")], ids="+".join
)
@pytest.mark.parametrize("empty", [False, True])
def test_what_an_attachment_needs(command, missing, empty):
    fake = Fake()
    env = without(*missing, COMMAND=command, **(dict.fromkeys(missing, "") if empty else {}))
    named = ",".join(f"CNI_{name}" for name in missing)
    refused(fake, fake.run(env), 4, f"required env variables [{named}] missing")


@pytest.mark.spec("cni.md F9", "cni.md F12")
def test_what_it_does_not_need():
    assert Fake().run(without("ARGS")).exit == 0
    assert Fake().run(without("NETNS", COMMAND="DEL")).exit == 0


@pytest.mark.spec("cni.md F13")
@pytest.mark.parametrize("missing", ["IFNAME", "CONTAINERID", "PATH"])
def test_what_del_needs(missing):
    fake = Fake()
    refused(fake, fake.run(without(missing, COMMAND="DEL")), 4, f"required env variables [CNI_{missing}] missing")


@pytest.mark.parametrize("command", ["GC", "STATUS"])
def test_gc_and_status_need_a_path_alone(command):
    fake = Fake()
    refused(fake, fake.run({"CNI_COMMAND": command}), 4, "required env variables [CNI_PATH] missing")


@pytest.mark.spec("cni.md F15", "flannel.md §10.1/versions")
def test_version_needs_nothing_and_reads_nothing():
    done = Fake().run({"CNI_COMMAND": "VERSION"}, b"", stdin_error="banana")
    assert (done.exit, done.stdout) == (0, b'{"cniVersion":"1.1.0","supportedVersions":["9.8.7","10.0.0"]}\n')


@pytest.mark.spec("cni.md F16")
def test_a_container_id_with_wrong_characters():
    fake = Fake()
    done = fake.run(without(CONTAINERID="some-%%container-id"))
    refused(fake, done, 4, "invalid characters in containerID", "some-%%container-id")


@pytest.mark.spec("cni.md F17")
@pytest.mark.parametrize("container_id", ["a", "A.b_c-1", "0123456789abcdef" * 4])
def test_container_ids(container_id):
    assert Fake().run(without(CONTAINERID=container_id)).exit == 0


@pytest.mark.spec("cni.md F18")
@pytest.mark.parametrize("container_id", ["-ab", ".a", "_a", "a b", "a/b", "a\n", "ä", "../../etc"])
def test_what_is_no_container_id(container_id):
    fake = Fake()
    done = fake.run(without("NETNS", CONTAINERID=container_id))  # found before what is missing
    refused(fake, done, 4, "invalid characters in containerID", container_id)


LONG, DOTS, SIGNS = (pytest.mark.spec(f"cni.md F{number}") for number in (19, 20, 21))


@pytest.mark.parametrize(
    "name, msg, details",
    [
        *(
            pytest.param(
                name, "interface name is too long", "interface name should be less than 16 characters", marks=LONG
            )
            for name in ("1234567890123456", "ä" * 8)
        ),
        *(pytest.param(name, "interface name is . or ..", None, marks=DOTS) for name in (".", "..")),
        *(
            pytest.param(name, "interface name contains / or : or whitespace characters", None, marks=SIGNS)
            for name in ("test/test", "test:test", "test test", "a\tb", "a\u00a0b")
        ),
    ],
)
def test_interface_names_that_are_refused(name, msg, details):
    fake = Fake()
    refused(fake, fake.run(without(IFNAME=name)), 4, msg, details)


@pytest.mark.spec("cni.md F22")
def test_an_interface_name_may_have_fifteen_letters():
    assert Fake().run(without(IFNAME="123456789012345")).exit == 0


@pytest.mark.spec("cni.md F23", "cni.md F24")
def test_a_request_without_a_version_is_0_1_0():
    assert Fake(versions=("0.1.0",)).run(ENV, b'{"name": "n"}').exit == 0
    assert Fake(versions=("0.1.0",)).run(ENV, b'{"name": "n", "cniVersion": ""}').exit == 0
    fake = Fake(versions=("4.3.2",))
    details = 'config is "0.1.0", plugin supports ["4.3.2"]'
    refused(fake, fake.run(ENV, b'{"name": "n"}'), 1, "incompatible CNI versions", details)


def test_a_version_must_be_named_exactly():
    fake = Fake(versions=("0.4.0", "1.0.0"))
    details = 'config is "1.0", plugin supports ["0.4.0" "1.0.0"]'
    refused(fake, fake.run(ENV, b'{"name": "n", "cniVersion": "1.0"}'), 1, "incompatible CNI versions", details)


@pytest.mark.spec("cni.md F25", cases="CHECK")
@pytest.mark.spec("cni.md F30", cases=("GC", "STATUS"))
@pytest.mark.parametrize("command", ["CHECK", "GC", "STATUS"])
def test_verbs_that_the_request_is_too_old_for(command):
    fake = Fake()
    done = fake.run(without(COMMAND=command), b'{"name": "n", "cniVersion": "0.3.0"}')
    refused(fake, done, 1, f"config version does not allow {command}")


@pytest.mark.spec("cni.md F26", cases="CHECK-*")
@pytest.mark.spec("cni.md F31", cases="GC-*")
@pytest.mark.parametrize("command, version", [("CHECK", b"0.4.0"), ("GC", b"1.1.0")])
def test_verbs_that_the_plugin_is_too_old_for(command, version):
    fake = Fake(versions=("0.1.0", "0.2.0", "0.3.0"))
    done = fake.run(without(COMMAND=command), b'{"name": "n", "cniVersion": "%s"}' % version)
    refused(fake, done, 1, f"plugin version does not allow {command}")


@pytest.mark.spec("cni.md F27", "cni.md F28")
def test_versions_that_are_none():
    for versions, asked in ((("0.4.0",), b"adsfsadf"), (("0.1.0", "adsfasdf"), b"0.4.0")):
        fake = Fake(versions=versions)
        done = fake.run(without(COMMAND="CHECK"), b'{"name": "n", "cniVersion": "%s"}' % asked)
        assert error_of(done)["code"] == 6
        assert fake.calls == []


@pytest.mark.spec("cni.md F29")
@pytest.mark.parametrize("name", ["te%%st", "../up", "a/b", "-a"])
def test_network_names(name):
    fake = Fake()
    done = fake.run(ENV, json.dumps({"name": name, "cniVersion": "9.8.7"}).encode())
    refused(fake, done, 7, "invalid characters found in network name", name)


@pytest.mark.spec("cni.md F32")
def test_a_verb_that_nobody_knows():
    fake = Fake()
    refused(fake, fake.run(without(COMMAND="NOPE")), 4, "unknown CNI_COMMAND: NOPE")


@pytest.mark.spec("cni.md F33")
def test_stdin_that_cannot_be_read():
    fake = Fake()
    refused(fake, fake.run(ENV, b"", stdin_error="banana"), 5, "error reading from stdin: banana")


@pytest.mark.spec("cni.md F34")
@pytest.mark.parametrize("stdin", [b"{", b"", b"[]", b'{"name": 3}', b"\xff"])
def test_stdin_that_is_no_configuration(stdin):
    fake = Fake()
    error = error_of(fake.run(ENV, stdin))
    assert error["code"] == 6
    assert error["msg"].startswith("error unmarshall network config: ")


@pytest.mark.spec("cni.md F35")
@pytest.mark.parametrize("stdin", [b"{}", b"null", b'{"name": ""}', b'{"name": null}'])
def test_a_configuration_without_a_name(stdin):
    fake = Fake()
    refused(fake, fake.run(ENV, stdin), 7, "missing network name")


@pytest.mark.spec("cni.md F36")
def test_an_error_with_a_code_of_its_own_is_printed_unchanged():
    error = error_of(Fake(error=CniError(1234, "insufficient something")).run(ENV))
    assert error == {"code": 1234, "msg": "insufficient something"}


@pytest.mark.spec("cni.md F37")
@pytest.mark.parametrize("error, msg", [(OSError("potato"), "potato"), (CniError(999, "potato"), "potato")])
def test_any_other_error_has_code_999(error, msg):
    assert error_of(Fake(error=error).run(ENV)) == {"code": 999, "msg": msg}


def test_a_fault_of_ours_is_an_error_object_too():
    done = Fake(error=KeyError("x")).run(ENV)
    assert error_of(done)["code"] == 999
    assert b"Traceback" in done.stderr


def test_a_client_that_has_gone_is_told_to_try_again():
    assert error_of(Fake(error=ClientGone()).run(ENV))["code"] == 11


@pytest.mark.spec("cni.md F38")
def test_a_version_of_another_type():
    assert error_of(Fake().run(ENV, b'{"name": "n", "cniVersion": 1}'))["code"] == 6


@pytest.mark.spec("cni.md F39")
@pytest.mark.spec("flannel.md §10.1/own-netns-guard", cases=("ADD", "DEL"))
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_the_hosts_own_namespace_is_refused_before_anything_is_done(command):
    fake = Fake()
    done = fake.run(without(COMMAND=command), host=NoHost(same_namespace=True))
    refused(fake, done, 8, "plugin's netns and netns from CNI_NETNS should not be the same")
    for override in ("1", "TRUE", "true"):
        env = without(COMMAND=command, NETNS_OVERRIDE=override)
        assert Fake().run(env, host=NoHost(same_namespace=True)).exit == 0


def test_a_plugin_that_is_not_ours():
    request = Request(plugin="../x", command="ADD", env=ENV, stdin=STDIN)
    assert error_of(plugins.run(request, NoHost()))["msg"] == 'no plugin "../x" in this build'


def test_what_is_installed_are_the_plugins_of_the_registry():
    assert judging.NAMES == registry.NAMES


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_plugin_tells_its_versions(name):
    request = Request(plugin=name, command="VERSION", env={"CNI_COMMAND": "VERSION"}, stdin=b"")
    answer = json.loads(plugins.run(request, NoHost()).stdout)
    # Two need what older versions cannot say (cni.md §1.6).
    first = {"bandwidth": "0.3.0", "firewall": "0.4.0"}.get(name, "0.1.0")
    assert answer == {"cniVersion": "1.1.0", "supportedVersions": list(versions_from(first))}
    about = plugins.run(Request(plugin=name, command="", env={}, stdin=b""), NoHost())
    assert about.stderr.startswith(f"CNI {name} plugin weft ".encode())
