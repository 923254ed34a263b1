"""extension, as the daemon runs it: commands before the lease, and a plane that runs those for peers."""

from typing import Final

from weft.daemon.backends.backend import Backend, Ground
from weft.daemon.backends.extension import plane
from weft.daemon.backends.extension.commands import run
from weft.desired.backends import extension
from weft.desired.backends.extension import ExtensionOptions, Printed
from weft.model.errors import Problem, Unavailable
from weft.model.value import Value

_MOST: Final = 2048  # of output: a lease has 4 KB in all


async def _told(chosen: Value, _ground: Ground, /, *, look_only: bool = False) -> Printed | None:
    """Run the PreStartupCommand."""
    command = chosen.before if isinstance(chosen, ExtensionOptions) else None
    if command is None or look_only:
        return None
    where = f"PreStartupCommand ({command})"
    try:
        text = await run(command, {})
    except OSError as error:
        raise Unavailable(Problem(code="CMD-001", where=where, seen=error.strerror or str(error))) from None
    if len(text.encode()) > _MOST:
        seen = f"it has printed {len(text.encode())} bytes"
        raise Unavailable(Problem(code="CMD-001", where=where, seen=seen, expected=f"{_MOST} at most"))
    return Printed(text=text)


EXTENSION: Final = Backend(desired=extension, prepare=_told, planes={"commands": plane.CommandsPlane}, undo=plane.undo)
