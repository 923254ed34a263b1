"""portmap: ports of the host that lead to the container (cni.md §5). In this build: a chain without mappings."""

from typing import Any, Final

from weft.cni.skel import Call, Plugin, about
from weft.wire import cnijson, cniresult
from weft.wire.cni import failure, not_in_this_build
from weft.wire.cnijson import JsonError

NAME: Final = "portmap"


def _add(call: Call) -> bytes:
    mappings = _mappings(call)
    previous = cniresult.read_previous(call.config, call.version)
    if previous is None:
        raise failure("must be called as chained plugin")
    if mappings:
        raise not_in_this_build(f'portmap: key "portMappings" with value {list(mappings)!r}')
    return cniresult.render(previous, call.version)


def _delete(call: Call) -> None:
    # An ADD with mappings has failed, so there is nothing to undo; failing here too would keep the plugins before
    # this one from ever being told DEL.
    if _mappings(call):
        call.note("portmap: mappings are not in this build: none were made, so none are removed")


def _mappings(call: Call) -> tuple[Any, ...]:
    try:
        return cnijson.items(cnijson.member(call.config, "runtimeConfig"), "portMappings", cnijson.as_object)
    except JsonError as error:
        raise failure(f"failed to parse config: {error}") from error


PLUGIN: Final = Plugin(name=NAME, add=_add, delete=_delete, about=about(NAME))
