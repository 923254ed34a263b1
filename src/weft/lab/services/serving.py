"""The Services of a running lab: every node has their rules, and a route to them.

All nodes have the same rules; a table is replaced whole, in one transaction.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

from weft.diag.check.trial import EndpointReport
from weft.kernel.netfilter.conntrack import forget_udp
from weft.kernel.netfilter.nfnetlink import NfSocket
from weft.lab import spec
from weft.lab.inside import underlay
from weft.lab.inside.namespaces import Inside
from weft.lab.inside.node import RunningNode
from weft.lab.inside.pod import RunningPod
from weft.lab.inside.processes import Processes
from weft.lab.network import misfits, understand
from weft.lab.report import ServiceReport
from weft.lab.services import choice, rules
from weft.lab.services.choice import Endpoint, Served
from weft.lab.spec import Service
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.net import Ip
from weft.model.text import one_of
from weft.model.value import replace

_AT_ONCE: Final = 8  # nodes whose rules are written together


class Serving:
    """`nodes` and `pods` are the lab's own, and change with it."""

    def __init__(
        self,
        lab: spec.Lab,
        inside: Inside,
        processes: Processes,
        *,
        nodes: dict[str, RunningNode],
        pods: dict[str, RunningPod],
    ) -> None:
        self._lab, self._inside, self._processes = lab, inside, processes
        self._nodes, self._pods = nodes, pods
        self._services = {service.name: service for service in lab.services}
        self._written: dict[str, str] = {}  # by node
        self._led: tuple[Served, ...] = ()  # what nodes' rules have last been made of
        self._turn = asyncio.Lock()

    @property
    def names(self) -> Collection[str]:
        return self._services.keys()

    def hosts(self) -> Iterable[tuple[str, Ip]]:
        return ((name, ip_address(text)) for name, service in self._services.items() for text in service.addresses)

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(self._services.values())

    async def expose(self, service: Service) -> ServiceReport:
        """`ConfigError` if it cannot be; `Unavailable` if a node refuses it: then none has it."""
        where, others = f"Service {service.name}", self.services
        problems = choice.problems(service, where=where, lab=self._lab, pods=self._pods.keys(), others=others)
        # A network of pods that has the addresses of Services: a lab without any may have one.
        network = understand(self._lab.network)
        problems = problems or misfits(network, replace(self._lab, services=(service,)), where)
        if problems:
            raise ConfigError(*problems)
        wanted = choice.addressed(service, self._lab.families, others)
        await self._change({**self._services, wanted.name: wanted})
        return _report(self._served(wanted))

    async def unexpose(self, name: str) -> None:
        """`ConfigError` names those there are."""
        if name not in self._services:
            expected = one_of(self._services, name) if self._services else "a Service: this lab has none"
            seen, hint = "no Service of this name", f"'weft lab services{self._lab.option}' shows them."
            raise ConfigError(Problem("LAB-002", name, seen, expected=expected, hint=hint))
        await self._change({each: service for each, service in self._services.items() if each != name})

    async def follow(self, lab: spec.Lab) -> None:
        """Have all nodes lead to the pods that there are now."""
        async with self._turn:
            self._lab = lab
            self._written = {name: text for name, text in self._written.items() if name in self._nodes}
            await self._lead()

    def reports(self) -> list[ServiceReport]:
        return [_report(self._served(service)) for service in self._services.values()]

    async def _change(self, services: dict[str, Service]) -> None:
        async with self._turn:
            before, self._services = self._services, services
            try:
                await self._lead()
            except BaseException:
                self._services = before
                with suppress(Unavailable):
                    await self._lead()
                raise

    def _served(self, service: Service) -> Served:
        there = (
            Endpoint(pod=name, node=pod.spec.node, address=address.ip)
            for name, pod in sorted(self._pods.items())
            for address in pod.addresses
        )
        return choice.served(service, there)

    async def _lead(self) -> None:
        """Only to nodes that have others."""
        led = tuple(map(self._served, self._services.values()))
        text = rules.tables(led, understand(self._lab.network).networks) if led else ""
        stale = _stale(self._led, led)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def write(node: RunningNode) -> None:
            async with gate:
                await self._write(node, text, stale)

        others = [node for node in self._nodes.values() if self._written.get(node.spec.name, "") != text]
        for failed in await asyncio.gather(*map(write, others), return_exceptions=True):
            if failed is not None:
                raise failed
        self._led = led

    async def _write(self, node: RunningNode, text: str, stale: Collection[int]) -> None:
        underlay.lead_to_services(node.rtnl, node.spec, self._lab.families, wanted=bool(text))
        ran = await self._processes.answer(node.room, ["nft", "-f", "-"], {}, (text or rules.tables((), ())).encode())
        if ran.exit:
            seen = f"nft ended with status {ran.exit}: {' '.join(ran.stderr.decode(errors='replace').split())[:300]}"
            raise Unavailable(Problem("LAB-002", f"Services on {node.spec.name}", seen))
        self._written[node.spec.name] = text
        if stale:
            await self._inside.run(node.room, partial(_forget, self._lab.families, stale))


def _stale(before: Iterable[Served], now: Iterable[Served]) -> set[int]:
    """Ports of UDP Services that lead elsewhere now: connection tracking would go on as before."""
    same = set(before) & set(now)
    services = (each.service for each in {*before, *now} - same if each.service.protocol == "UDP")
    return {port for service in services for port in (service.port, service.node_port) if port}


def _forget(families: Iterable[int], ports: Collection[int]) -> None:
    with closing(NfSocket.open()) as sock:
        for family in families:
            forget_udp(sock, family, ports)


def _report(served: Served) -> ServiceReport:
    service = served.service
    return ServiceReport(
        name=service.name,
        protocol=service.protocol,
        addresses=list(service.addresses),
        port=service.port,
        target_port=service.target_port,
        node_port=service.node_port,
        pods=list(service.pods),
        endpoints=[
            EndpointReport(pod=each.pod, node=each.node, address=str(each.address)) for each in served.endpoints
        ],
    )
