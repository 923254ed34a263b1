"""Calling another plugin, and the addresses that come from one (cni.md §1.11, §2.5).

A type of ours runs here; every other one is a program of the client's host, and its errors pass unchanged.
"""

import json
from contextlib import suppress
from typing import Final

from weft.cni.host.host import ClientGone
from weft.cni.sdk import record, startup
from weft.cni.sdk.startup import Call
from weft.model.attachment import Result
from weft.model.value import replace
from weft.wire import cnichain, cnijson
from weft.wire.cni import CniError, Ran, failure

# DELs of IPAM programs that could not be run, because their client had gone.
_OWED: Final = "/owed"


def run(call: Call, plugin: str, command: str, stdin: bytes) -> Ran:
    done: Ran | None
    if (ours := call.build.find(plugin)) is not None:
        request = replace(call.request, plugin=plugin, command=command, stdin=stdin)
        done = startup.run(ours, request, call.host, build=call.build, delegated=True)
    elif not plugin:
        raise failure("no plugin name provided")
    elif "/" in plugin:
        raise failure(f"invalid plugin name: {plugin}")
    else:
        done = call.host.delegate(plugin, command, {}, stdin)
    if done is None:
        directories = call.request.env.get("CNI_PATH", "").split(":")
        raise failure(f'failed to find plugin "{plugin}" in path [{" ".join(directories)}]')
    if done.stderr:
        call.note(done.stderr.decode("utf-8", "replace").rstrip("\n"))
    return done


def read_addresses(call: Call, ipam_type: str) -> None:
    """Have IPAM refuse a wrong configuration before anything is made. Programs of others know no such call."""
    ours = call.build.find(ipam_type)
    if ours is not None and ours.read is not None:
        ours.read(call)


def add_addresses(call: Call, ipam_type: str) -> Result:
    """A program that fails gets DEL (cni.md §1.9). If the client has gone, DEL is deferred."""
    ours = call.build.find(ipam_type)
    if ours is not None and ours.allocate is not None:
        return ours.allocate(call)
    _run_deferred(call, ipam_type)
    try:
        done = run(call, ipam_type, "ADD", call.request.stdin)
        try:
            cnichain.raise_for(done)
            return cnichain.read_outcome(done.stdout, call.version).result
        except CniError:
            with suppress(CniError):
                cnichain.raise_for(run(call, ipam_type, "DEL", call.request.stdin))
            raise
    except ClientGone:
        _defer_delete(call, ipam_type)
        raise


def delete_addresses(call: Call, ipam_type: str) -> None:
    """Run IPAM DEL. If the client has gone, it is deferred."""
    ours = call.build.find(ipam_type)
    if ours is not None and ours.allocate is not None:
        ours.delete(call)
        return
    try:
        done = run(call, ipam_type, "DEL", call.request.stdin)
    except ClientGone:
        _defer_delete(call, ipam_type)
        raise
    cnichain.raise_for(done)
    with suppress(FileNotFoundError):
        call.host.state.unlink(f"{_OWED}/{record.key_of(call.attachment)}.json")


def ask(call: Call, plugin: str, command: str, stdin: bytes | None = None) -> None:
    if command == "GC":
        _run_deferred(call, plugin)
    cnichain.raise_for(run(call, plugin, command, call.request.stdin if stdin is None else stdin))


def _defer_delete(call: Call, ipam_type: str) -> None:
    deferred = {
        "type": ipam_type,
        "network": call.network,
        "container": call.container_id,
        "ifname": call.ifname,
        "stdin": call.request.stdin.decode("utf-8", "replace"),
    }
    call.host.state.replace(
        f"{_OWED}/{record.key_of(call.attachment)}.json", json.dumps(deferred).encode(), parents=0o700
    )


def _run_deferred(call: Call, ipam_type: str) -> None:
    try:
        names = call.host.state.list(_OWED)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = f"{_OWED}/{name}"
        with suppress(OSError, ValueError, CniError):  # what cannot be read cannot be run
            deferred = cnijson.load(call.host.state.read(path))
            if (cnijson.text(deferred, "type"), cnijson.text(deferred, "network")) != (ipam_type, call.network):
                continue
            attachment = {
                "CNI_CONTAINERID": cnijson.text(deferred, "container"),
                "CNI_IFNAME": cnijson.text(deferred, "ifname"),
                "CNI_NETNS": "",
            }
            ran = call.host.delegate(ipam_type, "DEL", attachment, cnijson.text(deferred, "stdin").encode())
            if ran is not None and ran.exit == 0:
                call.host.state.unlink(path)
