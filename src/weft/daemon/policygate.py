"""Plugins wait here, in threads of their own, until what policies say of an attachment is in effect."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from weft.cluster.policysource import PolicySource
from weft.daemon.policycuts import Cuts
from weft.daemon.policyterm import Term
from weft.desired.policy.decide import pod_of
from weft.desired.policy.inputs import Attached, Mode
from weft.model.errors import Problem
from weft.model.net import Ip
from weft.model.node.nodestate import Durations

log = logging.getLogger(__name__)

_SECONDS: Final = 5.0  # of a plugin that waits
_AUDIT_SECONDS: Final = 0.5  # in an audit, which keeps no pod from anything
_LOOK_SECONDS: Final = 0.02
# What is watched may be behind what the kubelet heard: then a pod is asked for by itself.
_ASK_SECONDS: Final = 0.1
_ASK_AGAIN_SECONDS: Final = 2.0
_ENDING: Final = Problem(code="POL-003", where="policies", seen="weftd is ending", hint="Try again in a moment")

T = TypeVar("T")


class Enforced(Protocol):
    """What is enforced. `term` is None before it has begun, and then `unbegun` says why. Used in the loop alone."""

    cuts: Cuts | None
    term: Term | None

    @property
    def unbegun(self) -> Problem: ...

    def attach(self, key: str, attached: Attached) -> None:
        """Have it remembered for terms that begin later."""
        ...

    def detach(self, key: str) -> None: ...


class PolicyGate:
    """Serves `weft.cni.host.host.Gate`. `waited` counts how long ADD took here."""

    def __init__(self, policies: Enforced, source: PolicySource, *, mode: Mode, clock: Callable[[], float]) -> None:
        self.waited = Durations()
        self._policies = policies
        self._source = source
        self._mode: Mode = mode
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def admit(self, key: str, *, pod: str, uid: str, ips: tuple[Ip, ...], port: str, link: str) -> str:
        attached = Attached(pod=pod, uid=uid, ips=ips, port=port, link=link)

        async def admitted() -> str:
            began = self._clock()
            try:
                return await self._admit(key, attached)
            finally:
                self.waited.note(self._clock() - began)

        return self._ask(admitted(), otherwise=str(_ENDING))

    def release(self, key: str) -> None:
        self._ask(self._release(key), otherwise=None)

    def _ask(self, work: Coroutine[None, None, T], *, otherwise: T) -> T:
        """In a worker thread, which the loop may leave waiting when it ends."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * _SECONDS)
        except RuntimeError:  # there is no loop any more
            work.close()
            return otherwise
        except (TimeoutError, CancelledError):
            return otherwise

    async def _admit(self, key: str, attached: Attached) -> str:
        if not attached.pod:
            log.info("attachment %s is no pod of Kubernetes: no policy restricts it", key)
        policies, cuts = self._policies, self._policies.cuts
        policies.attach(key, attached)
        term: Term | None = None
        ask_at = self._loop.time() + _ASK_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS if self._mode == "enforce" else _AUDIT_SECONDS):
                while True:
                    if policies.term is not term and policies.term is not None:
                        term = policies.term
                        term.keeper.decided(term.decider.attached(key, attached))
                        if cuts is not None:  # its address may be one whose connections were cut
                            cuts.concern(set())
                    if term is not None:
                        with suppress(TimeoutError):  # others' changes may come without end
                            async with asyncio.timeout(_LOOK_SECONDS):
                                await term.keeper.idle()
                        if term.judges(key, attached) and not (cuts and cuts.concerns(attached.ips)):
                            return ""
                        if self._loop.time() >= ask_at and not term.decider.ready(key):
                            ask_at = self._loop.time() + _ASK_AGAIN_SECONDS
                            await self._source.ask(pod_of(attached))
                    await asyncio.sleep(_LOOK_SECONDS)
        why = str(self._why_not(key, attached))
        if self._mode == "enforce":
            return why
        log.warning("it would not be attached: %s", why)
        return ""

    def _why_not(self, key: str, attached: Attached) -> Problem:
        where = f"pod {attached.pod or key}"
        term = self._policies.term
        if term is None:
            return self._policies.unbegun
        if not term.decider.ready(key):
            hint = f"Its packets would be refused. {self._source.advice}"
            return Problem("POL-003", where, "no such Pod is known, or it has another UID", hint=hint)
        words = next(iter(term.keeper.tally.failing.values()), "it takes longer than that")
        return Problem(code="POL-003", where=where, seen=f"its policies are not in the kernel after 5 s: {words}")

    async def _release(self, key: str) -> None:
        self._policies.detach(key)
        term = self._policies.term
        if term is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS):
                    await term.keeper.idle()
