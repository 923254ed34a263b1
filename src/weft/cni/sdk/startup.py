"""The frame that all plugins share: the start-up algorithm of cni.md §1.3, in its exact order and words.

What plugins raise becomes an error object here; no plugin prints or exits.
"""

import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from weft import __version__
from weft.cni.host.host import ClientGone, Container, Host, Request
from weft.model.attachment import Attachment, Result
from weft.model.net import Ip
from weft.model.value import Value, field
from weft.wire import cni, cnijson, cniresult
from weft.wire.cni import CniError, Ran, failure
from weft.wire.cnijson import JsonError

T = TypeVar("T")

# Set in a call that a client makes again because the server of the first one died: when it was called, in nanoseconds
# since 1970 (client/main.c).
CALLED: Final = "CNI_WEFT_CALLED"
# From which version of the protocol a verb exists.
_SINCE: Final = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}


class Subject(Value):
    """`undo` removes what a leaked attachment's record tells of. It raises `OSError`, `CniError` or `JsonError`."""

    name: str
    undo: Callable[[Host, Attachment, cnijson.Object], None]


class Plugin(Value):
    """A plugin: its name, the versions it speaks, and its verbs. `add` returns what goes to stdout.

    A verb that is `None` has nothing to do and succeeds. `about` is for a person who starts the program. `read` refuses
    a wrong configuration of an ADD before another plugin makes anything for this one. `allocate` is the `add` of a
    plugin that gives addresses, as a function: others call that and `delete` where it is there.
    """

    name: str
    add: "Callable[[Call], bytes]"
    delete: "Callable[[Call], None]"
    check: "Callable[[Call], None] | None" = None
    gc: "Callable[[Call], None] | None" = None
    status: "Callable[[Call], None] | None" = None
    versions: tuple[str, ...] = cni.VERSIONS
    about: str = ""
    keeps: Subject | None = None
    read: "Callable[[Call], object] | None" = None
    allocate: "Callable[[Call], Result] | None" = None


class Build(Value):
    """What plugins may use of the rest of this build, which they must not import.

    `holder` returns the container id and interface that an address of the call's network is reserved for. `free` frees
    what an attachment holds if that is proved to be leaked, and returns the proof; it raises what `Subject.undo` does.
    `free_own` does so for the call's attachment, `free_network` for a whole network, and returns how many that were.
    `undo_own` undoes what plugins of ours before this one have made of its attachment just now.
    """

    find: Callable[[str], Plugin | None]
    holder: Callable[["Call", Ip], tuple[str, str] | None]
    free: Callable[[Host, Attachment], str]
    free_own: Callable[[Host, Attachment], str]
    free_network: Callable[[Host, str], int]
    undo_own: Callable[[Host, Attachment], None]
    is_kept: Callable[[Host, str, Attachment], bool]
    is_made_since: Callable[["Plugin", "Call", int], bool]


class Call(Value):
    """`version` is the request's dialect, `config` its stdin. For GC and STATUS what names an attachment is empty."""

    host: Host
    request: Request
    config: cnijson.Object
    network: str
    version: str
    build: Build
    notes: list[str] = field(default_factory=list)

    @property
    def attachment(self) -> Attachment:
        return Attachment(network=self.network, container_id=self.container_id, ifname=self.ifname)

    @property
    def container_id(self) -> str:
        return self.request.env.get("CNI_CONTAINERID", "")

    @property
    def ifname(self) -> str:
        return self.request.env.get("CNI_IFNAME", "")

    @property
    def netns(self) -> str:
        """For results and messages, never to be opened here."""
        return self.request.env.get("CNI_NETNS", "")

    @property
    def args(self) -> str:
        return self.request.env.get("CNI_ARGS", "")

    def container(self) -> Container:
        """The namespace, which this verb cannot do without."""
        if self.host.container is None:
            raise failure(self._unopened)
        return self.host.container

    def container_if_any(self) -> Container | None:
        """None if it is gone or not named: for DEL that is well."""
        if self.host.container is None and self.host.netns_problem and not self.host.netns_gone:
            raise failure(self._unopened)
        return self.host.container

    @property
    def _unopened(self) -> str:
        return f'failed to open netns "{self.netns}": {self.host.netns_problem}'

    def previous(self, missing: str = "Required prevResult missing") -> Result:
        result = cniresult.read_previous(self.config, self.version)
        if result is None:
            raise failure(missing)
        return result

    def previous_if_any(self) -> Result | None:
        """For DEL: None without one, or if it cannot be read, which must not keep DEL from work."""
        try:
            return cniresult.read_previous(self.config, self.version)
        except (CniError, JsonError) as error:
            self.note(f"{self.request.plugin}: {error}")
            return None

    def read_for_delete(self, read: Callable[[cnijson.Object], T], *, otherwise: T) -> T:
        """Return `otherwise` for a configuration that somebody has broken since ADD: records must do then."""
        try:
            return read(self.config)
        except (CniError, JsonError) as error:
            self.note(f"{self.request.plugin}: {error}")
            return otherwise

    def is_valid(self, attachment: Attachment) -> bool:
        if attachment.network != self.network:
            return True
        return (attachment.container_id, attachment.ifname) in cni.valid_attachments(self.config)

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(plugin: Plugin, request: Request, host: Host, *, build: Build, delegated: bool = False) -> Ran:
    """Do what the plugin's process would do; `delegated` says that a plugin of ours has called it."""
    if not request.command and plugin.about:
        versions = f"CNI protocol versions supported: {', '.join(plugin.versions)}"
        return Ran(exit=0, stderr=_lines([plugin.about, versions]))
    notes: list[str] = []
    try:
        done = _dispatch(plugin, request, host, build, notes, delegated=delegated)
        return Ran(exit=0, stdout=done, stderr=_lines(notes))
    except CniError as error:
        said = error
    except BlockingIOError as error:  # a lock that another program keeps
        said = CniError(cni.TRY_AGAIN, f"{error.filename} is {error.strerror}")
    except (OSError, JsonError) as error:
        said = cni.failure(str(error))
    except ClientGone:
        said = CniError(cni.TRY_AGAIN, "the client went away")
    except Exception as error:  # noqa: BLE001 - the last line of defence: a fault of ours is an error object too
        notes.append(traceback.format_exc())
        said = cni.failure(f"internal fault: {error!r}")
    return Ran(exit=1, stdout=said.render(), stderr=_lines(notes))


def _lines(notes: list[str]) -> bytes:
    return "".join(f"{note}\n" for note in notes).encode("utf-8", "replace")


def about(name: str) -> str:
    return f"CNI {name} plugin weft {__version__}"


def _dispatch(
    plugin: Plugin, request: Request, host: Host, build: Build, notes: list[str], *, delegated: bool
) -> bytes:
    cni.check_environment(request.command, request.env)
    if request.command == "VERSION":
        return cni.render_versions(plugin.versions)
    if request.stdin_error:
        raise CniError(cni.IO_FAILURE, f"error reading from stdin: {request.stdin_error}")
    try:
        config = cnijson.load(request.stdin)
        network = cnijson.text(config, "name")
    except JsonError as error:
        raise CniError(cni.UNDECODABLE, f"error unmarshall network config: {error}") from error
    cni.check_network_name(network)
    if request.command not in {"ADD", "DEL", *_SINCE}:
        raise CniError(cni.BAD_ENVIRONMENT, f"unknown CNI_COMMAND: {request.command}")
    version = _reconciled(plugin, request.command, config)
    if request.command in ("ADD", "DEL"):
        _guard(request, host)
    call = Call(host=host, request=request, config=config, network=network, version=version, build=build, notes=notes)
    if request.command == "ADD":
        return plugin.add(call) if delegated else _add(plugin, call)
    verbs = {"DEL": plugin.delete, "CHECK": plugin.check, "GC": plugin.gc, "STATUS": plugin.status}
    verb = verbs[request.command]
    if verb is not None:
        verb(call)
    return b""


def _add(plugin: Plugin, call: Call) -> bytes:
    """Attach as a runtime asks for it: its first plugin begins again, and if a later one fails, nothing is left."""
    called = call.request.env.get(CALLED, "")
    # What this call has not made stays: ADD then refuses.
    if called.isdecimal() and call.build.is_made_since(plugin, call, int(called)):
        plugin.delete(call)
    if cnijson.value_of(call.config, "prevResult") is None:
        _free_earlier(call)
        return plugin.add(call)
    again = plugin.keeps is not None and call.build.is_kept(call.host, plugin.keeps.name, call.attachment)
    try:
        return plugin.add(call)
    except BaseException:
        # Not of an attachment that was whole: somebody calls this plugin alone once more.
        # Not every runtime sends the DEL that is due then (cni.md §1.9).
        try:
            if not again:
                call.build.undo_own(call.host, call.attachment)
        except (OSError, CniError, JsonError) as error:
            call.note(f"{call.request.plugin}: what earlier plugins have made is left to DEL: {error}")
        raise


def _free_earlier(call: Call) -> None:
    try:
        proof = call.build.free_own(call.host, call.attachment)
    except (OSError, CniError, JsonError) as error:
        call.note(f"{call.request.plugin}: an earlier attachment is not freed: {error}")
        return
    if proof:
        call.note(f"{call.request.plugin}: an earlier attachment of {call.container_id} was freed: {proof}")


def _reconciled(plugin: Plugin, command: str, config: cnijson.Object) -> str:
    """DEL works with any version, so that what was made can go."""
    if command == "DEL":
        with suppress(CniError):
            return _version(config)
        return cni.VERSIONS[0]
    version = _version(config)
    if command in _SINCE:
        _check_verb(plugin, command, version)
    cni.reconcile(version, plugin.versions)
    return version


def _version(config: cnijson.Object) -> str:
    try:
        return cnijson.text(config, "cniVersion") or cni.VERSIONS[0]
    except JsonError as error:
        raise CniError(cni.UNDECODABLE, f"decoding version from network config: {error}") from error


def _check_verb(plugin: Plugin, command: str, version: str) -> None:
    try:
        if not cni.at_least(version, _SINCE[command]):
            raise CniError(cni.INCOMPATIBLE_VERSION, f"config version does not allow {command}")
        if not any(cni.at_least(supported, version) for supported in plugin.versions):
            raise CniError(cni.INCOMPATIBLE_VERSION, f"plugin version does not allow {command}")
    except ValueError as error:
        raise CniError(cni.UNDECODABLE, str(error)) from error


def _guard(request: Request, host: Host) -> None:
    """Refuse to act in the plugin's own namespace (cni.md §1.4), before anything is done, unlike upstream."""
    override = request.env.get("CNI_NETNS_OVERRIDE", "")
    if override == "1" or override.lower() == "true":
        return
    if host.same_namespace:
        raise CniError(cni.BAD_NETNS, "plugin's netns and netns from CNI_NETNS should not be the same")
