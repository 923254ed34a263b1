"""A plugin called as a runtime calls it, a program with variables and a configuration, and what it answers."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.netns import Netns

SECONDS: Final = 60

Meanwhile = Callable[["subprocess.Popen[bytes]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: `json` is standard output decoded, None if there was none."""

    exit: int
    json: Any
    stderr: str

    @classmethod
    def of(cls, status: int, stdout: bytes, stderr: bytes) -> "Answer":
        return cls(exit=status, json=json.loads(stdout) if stdout else None, stderr=stderr.decode())

    def __str__(self) -> str:
        return f"{self.exit} {self.json or ''}{self.stderr}".rstrip()

    @property
    def msg(self) -> str:
        """The error's text; empty when there was no error."""
        return "" if self.exit == 0 else self.json["msg"]

    @property
    def code(self) -> int:
        return 0 if self.exit == 0 else self.json["code"]

    @property
    def result(self) -> Any:
        """The result of what must have succeeded."""
        assert self.exit == 0, self.json
        return self.json


class Started:
    """A call that runs. The whole configuration is written at once, so it must fit into a pipe."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes) -> None:
        self.process = process
        self._input = stdin

    def feed(self) -> "Started":
        """Give it its configuration, which starts the work."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # one that ends without reading it says why, as in `communicate`
            self.process.stdin.write(self._input)
            self.process.stdin.close()
        self.process.stdin = None
        return self

    def end(self) -> Answer:
        """Wait for its end."""
        try:
            out, err = self.process.communicate(None if self.process.stdin is None else self._input, SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return Answer.of(self.process.returncode, out, err)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Caller:
    """A node whose plugins are called: `bin_dir` has them, a daemon may listen at `socket`.

    `prefix` is a command that runs another one where the node's files are.
    """

    def __init__(self, netns: Netns, bin_dir: Path, *, socket: Path, state: Path | None) -> None:
        self.netns = netns
        self.bin_dir = bin_dir
        self.socket = socket
        self.state = state
        self.prefix: tuple[str, ...] = ()

    def environment(self, command: str, container: str = "c1", **more: str | None) -> dict[str, str]:
        """The variables of a call; one that is None is not there."""
        variables: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(self.bin_dir),
            "WEFT_CNI_SOCKET": str(self.socket),
            "WEFT_STATE_DIR": self.state and str(self.state),
            **more,
        }
        return {name: value for name, value in variables.items() if value is not None}

    def start(
        self,
        command: str,
        config: Mapping[str, object] | str,
        *,
        plugin: str = "bridge",
        container: str = "c1",
        **more: str | None,
    ) -> Started:
        """Start a plugin that has not its configuration yet; `more` are variables of its environment."""
        process = self.netns.popen(
            [*self.prefix, str(self.bin_dir / plugin)],
            env=self.environment(command, container, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Started(process, (config if isinstance(config, str) else json.dumps(config)).encode())

    def call(self, command: str, config: Mapping[str, object], *, plugin: str = "bridge", **more: str | None) -> Any:
        """Call a plugin; returns what it printed, decoded."""
        return self.start(command, config, plugin=plugin, **more).end().json

    def chain(
        self,
        command: str,
        plugins: Iterable[Mapping[str, Any]],
        *,
        container: str,
        netns: str,
        result: Any = None,
        every: bool = False,
        meanwhile: Meanwhile | None = None,
    ) -> list[Answer]:
        """Call the plugins of a network, DEL from the last to the first, until one fails, or `every` one.

        ADD hands each result on; `result` is what the others know of it. `meanwhile` gets each process.
        """
        said: list[Answer] = []
        for plugin in reversed(list(plugins)) if command == "DEL" else plugins:
            known = {"prevResult": result} if result else {}
            ifname = "eth0" if container else ""
            call = self.start(
                command,
                {**plugin, **known},
                plugin=plugin["type"],
                container=container,
                CNI_NETNS=netns,
                CNI_IFNAME=ifname,
            ).feed()
            if meanwhile is not None:
                meanwhile(call.process)
            said.append(call.end())
            if said[-1].exit and not every:
                break
            if command == "ADD":
                result = said[-1].json
        return said
