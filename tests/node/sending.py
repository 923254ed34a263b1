"""What pods of two nodes send each other: megabytes over TCP, datagrams of every size, and errors that come back."""

import errno
import hashlib
import os
import socket
from concurrent.futures import ThreadPoolExecutor

from tests.support.netns import Netns
from weft.model.net import Ip

_PORT, _CLOSED = 7777, 7778
_HEADERS = {4: 20 + 8, 6: 40 + 8}


def transfer(here: Netns, there: Netns, address: Ip, *, megabytes: int) -> bool:
    """Send random data over TCP; tells whether both ends have the same digest."""
    at, family = (str(address), _PORT), _family(address)
    listener = there.call(lambda: socket.create_server(at, family=family))
    received, sent = hashlib.sha256(), hashlib.sha256()

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            while data := connection.recv(1 << 20):
                received.update(data)

    with listener, ThreadPoolExecutor() as pool:
        listener.settimeout(30)
        done = pool.submit(receive)
        with here.call(lambda: socket.create_connection(at, timeout=200)) as stream:
            for _ in range(megabytes):
                data = os.urandom(1 << 20)
                sent.update(data)
                stream.sendall(data)
        done.result(60)
    return received.digest() == sent.digest()


def send_every_size(here: Netns, there: Netns, address: Ip, *, mtu: int) -> None:
    """Send a datagram of each size up to one byte more than a packet takes, which is cut into two; all must arrive."""
    at, family = (str(address), _PORT), _family(address)
    receiver = there.call(lambda: socket.socket(family, socket.SOCK_DGRAM))
    sender = here.call(lambda: socket.socket(family, socket.SOCK_DGRAM))
    with sender, receiver:
        receiver.bind(at)
        receiver.settimeout(5)
        for size in range(mtu - _HEADERS[address.version] + 2):
            content = os.urandom(size)
            sender.sendto(content, at)
            assert receiver.recv(1 << 16) == content, f"{size} bytes"


def is_refused(here: Netns, address: Ip) -> bool:
    """Tell whether the error of a port where nothing listens comes back: ICMP's port unreachable."""
    with here.call(lambda: socket.socket(_family(address), socket.SOCK_DGRAM)) as sender:
        sender.connect((str(address), _CLOSED))
        sender.settimeout(5)
        sender.send(b"?")
        try:
            sender.recv(1)
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False


def _family(address: Ip) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def not_read(netns: Netns) -> int:
    """How many datagrams the sockets there had no room for, as their programs had not read others (proc(5))."""
    names, numbers = [line.split() for line in netns.run("cat /proc/net/snmp").splitlines() if line.startswith("Udp:")]
    return int(numbers[names.index("RcvbufErrors")])
