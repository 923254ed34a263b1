"""Pods that answer, and clients who ask them: what a published port is good for."""

import os
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, Self

from tests.support import namespaces

PORT: Final = 8080
Inside = Callable[[Callable[[], str]], str]  # calls a function in a network namespace
_SECONDS: Final = 3.0  # for a packet that is dropped; a port that nobody has is refused at once


class Answering:
    """A server in a pod's network namespace: on TCP and UDP port 8080 it tells `NAME ADDRESS-OF-CLIENT`."""

    def __init__(self, netns: Path | str, name: str) -> None:
        self._name = name
        self._stack = ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                sock = self._stack.enter_context(namespaces.run_in(fd, _opener(kind)))
                self._selector.register(sock, selectors.EVENT_READ)
        finally:
            os.close(fd)
        ours, self._end = socket.socketpair()
        self._stack.enter_context(ours)
        self._selector.register(ours, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._thread.join()
        self._stack.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock.family == socket.AF_UNIX:
                    return
                with suppress(OSError):
                    self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        if sock.type == socket.SOCK_STREAM:
            connection, client = sock.accept()
            with connection:
                connection.sendall(self._text(client[0]))
        else:
            _, client = sock.recvfrom(100)
            sock.sendto(self._text(client[0]), client)

    def _text(self, client: str) -> bytes:
        ip = ip_address(client.partition("%")[0])
        mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
        return f"{self._name} {mapped or ip}".encode()


def _opener(kind: socket.SocketKind) -> Callable[[], socket.socket]:
    def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, kind)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("::", PORT))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        return sock

    return opened


def ask(inside: Inside, address: object, port: int, *, udp: bool = False, source: int = 0) -> str:
    """Return what an `Answering` tells a client; empty when nobody answers.

    `inside` leads to the client's network namespace, `source` is the port that it asks from.
    """
    family = socket.AF_INET6 if ip_address(str(address)).version == 6 else socket.AF_INET

    def asked() -> str:
        with socket.socket(family, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM) as sock:
            sock.settimeout(_SECONDS)
            try:
                sock.bind(("", source))
                sock.connect((str(address), port))
                if udp:
                    sock.send(b"?")
                return sock.recv(100).decode()
            except OSError:
                return ""

    return inside(asked)
