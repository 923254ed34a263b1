"""Where `weft` and `weftd` begin: Ctrl-C while they are still being loaded ends them without a traceback.

Loading takes a tenth of a second, so nothing that takes time is imported before the signal is set.
"""

import gc
import os
import signal
from types import FrameType


def weft() -> None:
    """Be the console script `weft`."""
    mine = _end_quietly()
    from weft.cli import main

    if mine:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def weftd() -> None:
    """Be the console script `weftd`, whose event loop takes the signals over."""
    _end_quietly()
    gc.disable()  # what is loaded stays; the daemon turns the collector on when it is ready
    from weft.daemon.main import main

    main()


def _end_quietly() -> bool:
    """Have Ctrl-C end the process at once; not where the program that started it wants the signal ignored."""
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, _end)
    return mine


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)  # nothing has begun that would have to be ended
