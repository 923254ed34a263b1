"""The relay of back end udp by Debian's kernel, which takes no UDP packets that are joined: Linux 6.2 and later do."""

import os
import socket
from typing import Any

from tests.support.crossing import cross
from tests.support.netns import Netns
from tests.support.weftd import DUAL, VXLAN
from tests.vm.scenarios_nodes import cluster
from weft.model.net import Ip

_UDP_SEGMENT = 103
_EACH, _PACKETS = 500, 20
_CONF: dict[str, Any] = {**VXLAN, "Backend": {"Type": "udp", "KernelPath": False}, **DUAL}


def check_the_relay_carries_streams_and_trains_of_datagrams() -> None:
    with cluster(_CONF) as here:
        one, two = here.nodes(1, 2)
        cross(one, two)
        for far in two.pods[0].ips:
            _train(one.pods[0], two.pods[0], far)


def _train(here: Netns, there: Netns, address: Ip) -> None:
    """Datagrams that are sent at once come in whole, as many as there were."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    receiver = there.call(lambda: socket.socket(family, socket.SOCK_DGRAM))
    sender = here.call(lambda: socket.socket(family, socket.SOCK_DGRAM))
    with sender, receiver:
        receiver.bind((str(address), 7777))
        receiver.settimeout(20)
        sender.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, _EACH)
        content = os.urandom(_EACH * _PACKETS)
        sender.sendto(content, (str(address), 7777))
        assert b"".join(receiver.recv(1 << 16) for _ in range(_PACKETS)) == content
