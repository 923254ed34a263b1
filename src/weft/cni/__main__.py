"""What the client becomes when no daemon answers: `python -I -m weft.cni PLUGIN`, environment and stdin unchanged."""

import gc
import os
import sys
from typing import Final

_MAX_INPUT: Final = 1 << 20


def main(plugin: str) -> int:
    """Serve one call of a plugin in this process; returns the exit status."""
    gc.disable()  # the process ends before there is anything to collect
    from weft.cni.host import state
    from weft.cni.serve import local

    command = os.environ.get("CNI_COMMAND", "")
    stdin, problem = b"", ""
    # VERSION does not read its stdin (cni.md §1.3), and nobody waits for a terminal to say what a plugin is.
    if command not in ("", "VERSION"):
        try:
            stdin = sys.stdin.buffer.read(_MAX_INPUT + 1)
        except OSError as error:
            problem = str(error)
        if len(stdin) > _MAX_INPUT:
            stdin, problem = b"", "more than 1 MiB"
    done = local.run(
        plugin,
        os.environ,
        stdin=stdin,
        stdin_error=problem,
        state_dir=state.chosen(os.environ),
    )
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(done.stderr)
    sys.stderr.buffer.flush()
    return done.exit


if __name__ == "__main__":
    # Not `sys.exit`: nothing is left to do, and to take the interpreter apart takes 9 of a call's 60 ms.
    os._exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
