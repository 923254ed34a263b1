"""WireGuard by wireguard-go: tests/vm does the same with a kernel that has it."""

import os
import signal

from tests.support.netns import Netns
from tests.support.weftd import eventually
from tests.support.wireguardroutes import networks_go_from_peer_to_peer
from weft.daemon.backends.wireguard import inprocess


def test_networks_go_from_peer_to_peer(netns: Netns):
    device = f"wg{os.getpid()}"  # its socket has this name in a folder of all namespaces
    netns.run(f"ip tuntap add dev {device} mode tun")
    pid = netns.call(lambda: inprocess.start(device))
    try:
        eventually(lambda: netns.call(lambda: inprocess.InProcess().process(device)) == pid)
        networks_go_from_peer_to_peer(netns, device)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
