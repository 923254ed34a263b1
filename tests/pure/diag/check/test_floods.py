"""Others that send more than we read keep no check and no doctor for ever."""

import socket
from typing import Any

import pytest

from weft.diag.check import answering
from weft.diag.sight import peer_probes


class Flooded(socket.socket):
    """There is always something to read."""

    def recvfrom(self, *_: int) -> Any:
        return bytes(28), ("192.0.2.1", 0)


@pytest.mark.parametrize(
    "read", [lambda sock: list(answering._received(sock)), lambda sock: peer_probes._received(sock, 1, (), {})]
)
def test_a_flood_is_left_after_some_thousand_packets(read: Any):
    with Flooded(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert len(read(sock)) < 100_000
