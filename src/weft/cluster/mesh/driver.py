"""Calls the core of a mesh, wakes it when it is due, and asks it no more once it has raised."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

from weft.cluster.mesh.held import Held
from weft.mesh.core import Core
from weft.model.errors import ConfigError
from weft.model.mesh.effects import Effect


class CoreDriver:
    """`core` is None before it begins and after its end. `fault` is what it has raised; `held` takes what it wants."""

    def __init__(self, held: Held, now: Callable[[], float]) -> None:
        self.core: Core | None = None
        self.fault: Exception | None = None
        self._held = held
        self._now = now
        self._called = asyncio.Event()

    def begin(self, core: Core) -> None:
        self.core, self.fault = core, None

    def end(self) -> None:
        self.core = None

    def call(self, ask: Callable[[Core], Iterable[Effect]]) -> None:
        """Raises `ConfigError` for what the core refuses. After any other error it may be changed by half."""
        if self.core is None:
            return
        try:
            self._held.take(ask(self.core))
        except ConfigError:
            raise
        except Exception as fault:  # noqa: BLE001 - `run` ends with it
            self.core, self.fault = None, fault
            self._held.clear()
        self._called.set()

    async def run(self, core: Core) -> NoReturn:
        """Raises what the core has raised, in any call of it."""
        while self.fault is None:
            self._called.clear()
            left = core.due - self._now()
            if left <= 0:
                self.call(lambda core: core.tick(self._now()))
                await asyncio.sleep(0)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._called.wait()
        raise self.fault
