"""The history of a node on disk, a line of JSON for each event, so that a restart loses none.

It is written as a whole some seconds after an event, and at the end.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from weft.beside.threads import beside
from weft.daemon.disk import files
from weft.daemon.disk.files import Latest
from weft.model.node.history import MOST, Event, History

_FILE: Final = "history.jsonl"
_MAX_BYTES: Final = 4 << 20  # 1,000 events of the longest texts take 3.4 MB
_SAVE_SECONDS: Final = 10.0


async def keep(history: History, directory: Path) -> None:
    """Restore the events of earlier runs, then write all when they change, until cancelled."""
    if not history.restored:
        history.restore(await beside(lambda: load(directory)))
    now = history.events
    kept = file(directory, lambda: now)
    written = 0
    try:
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            if written == history.last:
                continue
            last, now = history.last, history.events
            if await kept.attempt():
                written = last
    finally:
        now = history.events
        await kept.finish()


def load(directory: Path) -> list[Event]:
    """Read the events of earlier runs (`files.load`)."""
    return files.load(directory / _FILE, _parse, limit=_MAX_BYTES) or []


def file(directory: Path, events: Callable[[], tuple[Event, ...]]) -> Latest:
    """The file of what `events` returns."""
    return Latest(directory / _FILE, lambda: msgspec.json.Encoder().encode_lines(events()), mode=0o600)


def _parse(content: bytes) -> list[Event]:
    events = msgspec.json.Decoder(Event).decode_lines(content)[-MOST:]
    numbers = [event.number for event in events]
    if numbers != sorted(set(numbers)) or any(number < 1 for number in numbers[:1]):
        raise ValueError("numbers that do not count up")
    return events
