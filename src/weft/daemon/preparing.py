"""What some back ends need before there is a lease, because the lease tells of it: a command's output, keys.

The code of a back end is imported when a network asks for it.
"""

import logging
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Final, Protocol

from weft.beside.threads import beside
from weft.config.options import Options
from weft.desired.backends.extension import ExtensionOptions, Told
from weft.desired.backends.ipsec import Esp
from weft.desired.backends.udp import UdpOptions, Ways
from weft.desired.backends.wireguard import Keys
from weft.kernel.commands import run
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.value import Value


class Preparation(Protocol):
    """Prepares for a back end with these options. Raises `Unavailable` for what may go better later.

    What is kept goes into the instance's `directory`. With `look_only` nothing is run or written: for a plan.
    """

    def __call__(
        self, chosen: Value, options: Options, directory: Path, /, *, look_only: bool = False
    ) -> Awaitable[Value | None]:
        """Prepare."""
        ...


log = logging.getLogger(__name__)

_MOST: Final = 2048  # of output: a lease has 4 KB in all


async def told(chosen: Value, _options: Options, _directory: Path, *, look_only: bool = False) -> Told | None:
    """Run the PreStartupCommand of `extension`."""
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
    return Told(text=text)


async def keys(_chosen: Value, options: Options, directory: Path, *, look_only: bool = False) -> Keys:
    """This node's key for `wireguard`, made if there is none, and whether the kernel has WireGuard."""
    from weft.daemon.disk import wgkey

    file = options.wireguard_key_file
    private = await beside(
        lambda: wgkey.given(Path(file), look_only=look_only) if file else wgkey.own(directory, look_only=look_only)
    )
    in_process = await beside(_in_process)
    return Keys(private=private, public=wgkey.public(private), in_process=in_process)


def _in_process() -> bool:
    """Tell whether a process is to serve devices: the kernel cannot, and the program is there."""
    from weft.kernel.wireguard import inprocess
    from weft.kernel.wireguard.inkernel import InKernel

    kernel = InKernel.open()
    if kernel is not None:
        kernel.close()
        return False
    if inprocess.installed():
        log.warning("the kernel has no WireGuard: %s serves it, at a fraction of the speed", inprocess.PROGRAM)
        return True
    return False


async def ways(chosen: Value, _options: Options, _directory: Path, *, look_only: bool = False) -> Ways:
    """Whether the kernel carries packets of `udp` itself: it has taken the programs, as a trial.

    Raises `ConfigError` (HOST-002) if weft was built without its relay, which this back end cannot do without.
    """
    from weft.forward.build import PROGRAM

    if PROGRAM.built() is None:
        seen, hint = "this weft was built without its relay", f"Build it: {PROGRAM.hint}."
        raise ConfigError(Problem(code="HOST-002", where="back end udp", seen=seen, hint=hint))
    if not isinstance(chosen, UdpOptions) or not chosen.kernel_path:
        return Ways(in_kernel=False)
    from weft.forward import kernelpath

    why = await beside(lambda: kernelpath.missing(attach=not look_only))
    if not look_only:
        log.info("the kernel carries packets itself" if not why else f"a relay carries all packets: {why}")
    return Ways(in_kernel=not why)


async def esp(_chosen: Value, _options: Options, directory: Path, *, look_only: bool = False) -> Esp:
    """Whether the kernel has ESP for `ipsec`: it has taken a state, as a trial.

    Raises `ConfigError` for a directory whose path leaves no room for charon's socket.
    """
    from weft.kernel.charon import process
    from weft.kernel.charon.session import LONGEST_PATH
    from weft.kernel.xfrm import policies

    path = directory / process.SOCKET
    if len(bytes(path)) > LONGEST_PATH:
        seen, expected = f"{len(bytes(path))} bytes in {path}", f"{LONGEST_PATH} at most, for a socket of charon's"
        raise ConfigError(Problem(code="FLAG-001", where="--state-dir", seen=seen, expected=expected))
    try:
        why = await beside(policies.missing)
    except OSError as error:
        seen = error.strerror or str(error)
        raise Unavailable(Problem(code="VTEP-002", where="IPsec in the kernel", seen=seen)) from None
    if not look_only:
        if why:
            log.warning("the kernel has no ESP (%s): charon carries packets itself, at a fraction of the speed", why)
        else:
            log.info("the kernel encrypts; charon agrees on keys")
    return Esp(in_kernel=not why)


PREPARATIONS: Final[Mapping[str, Preparation]] = {"extension": told, "wireguard": keys, "udp": ways, "ipsec": esp}
