"""`weftd`: flags and environment in, exit status out; nothing else in the daemon reads argv, environment or clock.

Exit status: 0 after a stop that a signal asked for, `--help` and `--version`; 1 when the node cannot be served, or
a fault of ours ended the daemon; 2 for a command line or environment that cannot be understood.
"""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from weft import __version__
from weft.beside.threads import keep_reserve
from weft.config.flags import changed, parse_flags
from weft.config.options import Options
from weft.daemon.node import Node
from weft.daemon.process import logs
from weft.daemon.process.rights import give_away_all_but_modules
from weft.daemon.process.supervise import CODE, outcome
from weft.daemon.world import World, real
from weft.model.errors import TYPED, ConfigError, Problem, typed
from weft.model.text import typed_from
from weft.model.value import replace

log = logging.getLogger("weft.daemon.main")  # also where the module is run as a program

_UMASK = 0o022  # whatever the parent's: nothing that we make is for others to write to
_NOT_OURS = "%s is ignored: to change flags, restart weftd; the network configuration is in the store"
_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MALLOC_BYTES: Final = 128 << 10  # glibc's own values at the start, which no longer move once they are set


def main() -> None:
    """Run the daemon of this process's command line, and exit."""
    sys.exit(run(sys.argv[1:], os.environ, real(os.environ.get("NOTIFY_SOCKET", ""))))


def run(argv: Sequence[str], environ: Mapping[str, str], world: World) -> int:
    """Run the daemon until it has to stop; returns the exit status."""
    TYPED.set(typed_from(environ))
    try:
        options = parse_flags(argv, environ)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
        sys.stderr.write("weftd --help lists every flag.\n")
        return 2
    if options.help:
        from weft.config.flaghelp import help_text

        sys.stdout.write(help_text())
        return 0
    if options.version:
        sys.stderr.write(f"{__version__}\n")
        return 0
    world = replace(world, modules=give_away_all_but_modules())
    give_back()
    logs.set_up(options.v, options.log_format, environ.get("JOURNAL_STREAM", ""))
    os.umask(_UMASK)
    log.info("weftd %s starts: %s", __version__, " ".join(changed(options)) or "no flag differs from its default")
    for warning in options.warnings:
        log.warning("FLAG-001 %s", warning)
    # What start-up leaves is there to stay: the collector need not walk over it again and again. As a console script
    # it is off already, before anything was loaded.
    gc.disable()
    keep_reserve()
    return asyncio.run(_serve(options, world))


def give_back() -> None:
    """Have the C library give back memory that is free (mallopt(3)); musl has no such limits.

    glibc raises its limits to the largest block that was freed, and gives each thread an arena: with 5,000 peers 3 MB
    of a start would stay.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MALLOC_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _MALLOC_BYTES)
        mallopt(_M_ARENA_MAX, 1)


async def _serve(options: Options, world: World) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    stopping = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopping
        stopping = True
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)  # a second signal kills at once, even while nothing reads the log
        log.info("%s: stopping; what is in the kernel stays", number.name)
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    node = Node(options, world)
    for number in (signal.SIGHUP, signal.SIGUSR2):  # any of them would end us in silence
        loop.add_signal_handler(number, log.info, _NOT_OURS, number.name)
    loop.add_signal_handler(signal.SIGUSR1, node.write_state)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it hands that down
    try:
        fault = await outcome(node.run)
    except asyncio.CancelledError as error:
        if stopping:
            if node.goes_on:
                log.info(
                    "%s goes on and serves pods; `%s` ends it, but takes pods off the network, too"
                    " (before flanneld starts here, see docs/howto/run-weftd.md)",
                    node.goes_on,
                    typed("cleanup"),
                )
            return 0
        fault = error
    except Exception as error:  # noqa: BLE001 - of whatever kind, while it stopped
        fault = error
    _explain(fault or RuntimeError("it returned"))
    return 1


def _explain(fault: BaseException) -> None:
    """Say why the daemon ends."""
    if isinstance(fault, BaseExceptionGroup):
        for each in fault.exceptions:
            _explain(each)
    elif isinstance(fault, ConfigError):
        for problem in fault.problems:
            log.error("%s", problem)
    elif isinstance(fault, OSError) and fault.errno in (errno.EPERM, errno.EACCES):  # NetlinkError has no kinds
        expected = "root, or CAP_NET_ADMIN and CAP_NET_RAW"
        log.error(
            "%s", Problem(code="HOST-002", where="weftd", seen=str(fault), expected=expected, hint="Run weftd as root")
        )
    else:
        hint = "What is in the kernel stays. Start weftd again, and report this with the lines below"
        problem = Problem(code=CODE, where="weftd", seen=f"a fault in weft ends it: {fault!r}", hint=hint)
        log.critical("%s", problem, exc_info=fault)


if __name__ == "__main__":
    main()
