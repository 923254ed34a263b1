"""A node's links to a mesh, with ears that write down what they hear; and somebody who speaks to it byte by byte."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from random import Random

from tests.support.waiting import comes
from weft.cluster.mesh.links import TcpLinks
from weft.model.errors import Problem
from weft.model.mesh.messages import Hello, Message
from weft.model.value import Secret
from weft.wire import noise
from weft.wire.meshlink import End

PORTS = count(20_000)
SECRET = "weft1-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
OTHER = "weft1-AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


class Node:
    def __init__(self, name: str, *passwords: str) -> None:
        self.port = next(PORTS)
        self.passwords = passwords
        self.ups: dict[int, tuple[Hello, str | None]] = {}
        self.downs: list[int] = []
        self.heard: list[tuple[int, Message]] = []
        self.undialled_: list[tuple[str, Problem]] = []
        self.refused: Counter[str] = Counter()
        private = os.urandom(32)
        self.hello = Hello(key=noise.public(private), run=7, name=name, ring=None)
        self.links = TcpLinks(
            private,
            self,
            lambda: self.hello,
            port=self.port,
            passwords=self._read,
            random=os.urandom,
            holder=lambda port: f"process 1 (the holder of {port})",
            refused=self.refused,
        )

    async def _read(self) -> tuple[Secret, ...]:
        return tuple(map(Secret, self.passwords))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def up(self, link: int, hello: Hello, dialled: str | None) -> None:
        self.ups[link] = hello, dialled

    def down(self, link: int) -> None:
        del self.ups[link]
        self.downs.append(link)

    def received(self, link: int, message: Message) -> None:
        assert link in self.ups
        self.heard.append((link, message))

    def undialled(self, address: str, why: Problem) -> None:
        self.undialled_.append((address, why))

    async def linked(self, other: "Node") -> tuple[int, int]:
        """The numbers of a new link, here and there."""
        before, there = max(self.ups, default=0), max(other.ups, default=0)
        self.links.dial(other.address)
        await comes(lambda: max(self.ups, default=0) > before and max(other.ups, default=0) > there)
        return max(self.ups), max(other.ups)


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(node.links.run()) for node in nodes]
        await asyncio.sleep(0)
        try:
            yield
        finally:
            for task in running:
                task.cancel()


class Raw:
    """A connection without a `TcpLinks`. With a password it can shake hands."""

    def __init__(self, node: Node, *, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), source_address=(source, 0))
        self.socket.setblocking(False)

    async def meet(self, *shared: bytes) -> End:
        private = os.urandom(32)
        hello = Hello(key=noise.public(private), run=1, name="raw", ring=None)
        end = End(initiator=True, static=private, ephemeral=Random().randbytes(32), shared=shared, hello=lambda: hello)
        while end.peer is None:
            await self.send(bytes(end.unsent))
            end.unsent.clear()
            data = await self.read()
            assert data, "the link was closed"
            end.feed(data)
        return end

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self) -> bytes:
        """Nothing once it is closed."""
        try:
            return await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        except ConnectionResetError:
            return b""

    async def closed(self) -> None:
        while await self.read():
            pass
        self.socket.close()
