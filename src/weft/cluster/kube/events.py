"""Events of this node in the API, by a connection of its own: no other question waits for an Event."""

from datetime import UTC, datetime
from typing import Final

from weft.cluster.kube.access import Access
from weft.cluster.kube.client import Client
from weft.plan.announce import Event
from weft.wire import kube

_PATH: Final = f"/api/v1/namespaces/{kube.EVENTS_OF_NODES}/events"


class Events:
    def __init__(self, access: Access) -> None:
        self._client = Client(access)

    async def put(self, node: str, event: Event) -> None:
        """Drops the connection: the next may be hours away. Raises `Unavailable`, with API-001 without the right."""
        now = datetime.now(UTC)
        body = kube.event_of(node, now, kind=event.kind, reason=event.reason, message=event.message)
        try:
            await self._client.post(_PATH, body)
        finally:
            self.close()

    def close(self) -> None:
        self._client.close()
