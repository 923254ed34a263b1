"""Plugins that write down how they were called, as small executables, for tests of the runtime.

Each call leaves its variables and its configuration. What a plugin does is a line of shell in `does`, by
`COMMAND.plugin`; unless told otherwise ADD prints a result that names the plugin.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!/bin/sh
name=${0##*/}
call=$RECORD/$(ls "$RECORD" | wc -l)
mkdir "$call" && env >"$call/env" && cat >"$call/stdin" && echo "$name" >"$call/name"
if [ -f "$DOES/$CNI_COMMAND.$name" ]; then . "$DOES/$CNI_COMMAND.$name"; exit; fi
case $CNI_COMMAND in
ADD) echo "{\\"interfaces\\": [{\\"name\\": \\"$name\\"}]}" ;;
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}' ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call of a plugin."""

    plugin: str
    env: dict[str, str]
    conf: dict[str, Any]

    @property
    def command(self) -> str:
        return self.env["CNI_COMMAND"]


class Recording:
    """A directory of plugins below `directory`, and what they were asked."""

    def __init__(self, directory: Path, plugins: Iterable[str]) -> None:
        self.bin_dir = directory / "bin"
        self._record = directory / "record"
        self._does = directory / "does"
        for made in (self.bin_dir, self._record, self._does):
            made.mkdir(parents=True)
        for name in plugins:
            program = self.bin_dir / name
            program.write_text(_SCRIPT)
            program.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """What the plugins need to inherit."""
        return {"PATH": "/usr/bin:/bin", "RECORD": str(self._record), "DOES": str(self._does)}

    def does(self, plugin: str, command: str, shell: str) -> None:
        (self._does / f"{command}.{plugin}").write_text(shell)

    @property
    def calls(self) -> list[Called]:
        found = sorted(self._record.iterdir(), key=lambda path: int(path.name))
        return [_read(path) for path in found]

    @property
    def asked(self) -> list[str]:
        """The calls, short: `ADD one`."""
        return [f"{call.command} {call.plugin}" for call in self.calls]

    def conf(self, key: str) -> list[Any]:
        """What each call had under a key of its configuration, None if nothing."""
        return [call.conf.get(key) for call in self.calls]


def _read(path: Path) -> Called:
    lines = (line.partition("=") for line in (path / "env").read_text().splitlines())
    conf = (path / "stdin").read_text()
    return Called(
        plugin=(path / "name").read_text().strip(),
        env={name: value for name, _, value in lines},
        conf=json.loads(conf) if conf else {},
    )
