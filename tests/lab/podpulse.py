"""Pods that come to Kubernetes nodes one after the other and go again, and how long each took."""

import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final

from tests.support.kubernetes.kubeapi import Api, ApiError, Json
from tests.support.kubernetes.kubenodes import PODS, pod

EVENTS: Final = "/api/v1/namespaces/default/events"
PERIOD: Final = 0.3  # seconds between two pods
LIFE: Final = 2.0  # seconds that a pod runs
_MOST: Final = 12  # pods that are there at once: a machine that is busy gets no more of them than it can bear
_HOSTS: Final = 5  # each of so many pods is in the node's own network
_LONG: Final = 20.0  # seconds
_NOT_NOW: Final = (ApiError, OSError, HTTPException, ValueError)
_names = itertools.count(1)


@dataclass
class Life:
    """Of one pod: when it was asked for, ran, was to go, and was gone; seconds of time.monotonic."""

    node: str
    asked: float
    host: bool = False  # in the node's own network: it needs no plugin
    ran: float = math.inf
    ended: float = math.inf
    gone: float = math.inf

    @property
    def start(self) -> float:
        """Seconds until it ran."""
        return self.ran - self.asked

    @property
    def end(self) -> float:
        """Seconds until it was gone."""
        return math.inf if self.gone == math.inf else self.gone - self.ended


@dataclass
class Pulse:
    """Pods that were made. `errors` are the words of what Kubernetes told of sandboxes that it could not make."""

    api: Api
    nodes: Sequence[str]
    label: str
    lives: dict[str, Life] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Make a pod each PERIOD until it is enough."""
        next_one = time.monotonic()
        for node in itertools.cycle(self.nodes):
            if self._enough.wait(max(0.0, next_one - time.monotonic())):
                return
            while self._there() >= _MOST:
                if self._enough.wait(0.05):
                    return
            next_one = max(next_one + PERIOD, time.monotonic())
            name = f"{self.label}-{len(self.lives)}"
            asked = time.monotonic()
            with suppress(*_NOT_NOW):
                host = len(self.lives) % _HOSTS == _HOSTS - 1
                self.api.post(PODS, pod(name, node=node, host=host, pulse=self.label))
                self.lives[name] = Life(node, asked, host)

    def _there(self) -> int:
        """How many pods are on nodes that are not lost to them: one that has not started for long counts no more."""
        now = time.monotonic()
        return sum(life.gone == math.inf and now - life.asked < _LONG for life in list(self.lives.values()))

    def look(self) -> None:
        """Follow the pods, and end each when it has run for LIFE."""
        while not self._over.is_set():
            with suppress(*_NOT_NOW):
                listed = self.api.get(PODS, labelSelector=f"pulse={self.label}")
                there = {each["metadata"]["name"] for each in listed["items"]}
                for each in listed["items"]:
                    self._seen(each)
                for name, life in list(self.lives.items()):
                    if name not in there and life.ran < math.inf and life.gone == math.inf:
                        life.gone = time.monotonic()
                self._follow(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        query = {"labelSelector": f"pulse={self.label}", "resourceVersion": version}
        with suppress(TimeoutError), self.api.watch(PODS, seconds=5.0, **query) as events:
            for event in events:
                if event["type"] == "ERROR" or self._over.is_set():
                    return
                if event["type"] == "DELETED":
                    self.lives[event["object"]["metadata"]["name"]].gone = time.monotonic()
                else:
                    self._seen(event["object"])

    def _seen(self, found: Json) -> None:
        life = self.lives.get(found["metadata"]["name"])
        status = found["status"]
        if life is not None and life.ran == math.inf and status.get("phase") == "Running" and status.get("podIP"):
            life.ran = time.monotonic()

    def reap(self) -> None:
        """End pods that have run for LIFE."""
        while not self._over.wait(0.1):
            now = time.monotonic()
            for name, life in list(self.lives.items()):
                if life.ended == math.inf and life.ran + LIFE < now:
                    life.ended = now
                    with suppress(*_NOT_NOW):
                        self.api.delete(f"{PODS}/{name}")

    def enough(self) -> None:
        """Make no more pods."""
        self._enough.set()

    def settle(self, seconds: float) -> None:
        """Make no more pods, and wait until all that were made ran and are gone, or so long."""
        self.enough()
        deadline = time.monotonic() + seconds
        while any(life.gone == math.inf for life in list(self.lives.values())) and time.monotonic() < deadline:
            time.sleep(0.1)

    def close(self) -> None:
        """End everything, and remove what is there still."""
        self._enough.set()
        self._over.set()
        self.errors = [
            event.get("message", "")
            for event in self.api.get(EVENTS)["items"]
            if event["reason"] == "FailedCreatePodSandBox" and event["involvedObject"]["name"] in self.lives
        ]
        self.api.delete(PODS, labelSelector=f"pulse={self.label}", gracePeriodSeconds=1)

    @property
    def starts(self) -> list[float]:
        return [life.start for life in self.lives.values() if not life.host]

    @property
    def floor(self) -> list[float]:
        """The starts of pods in the node's own network: what no network can do without."""
        return [life.start for life in self.lives.values() if life.host]

    @property
    def ends(self) -> list[float]:
        """Of those that ran."""
        return [life.end for life in self.lives.values() if life.ran < math.inf and not life.host]


@contextmanager
def pulse(api: Api, nodes: Sequence[str]) -> Iterator[Pulse]:
    """Have pods come to these nodes in turn as long as the block runs."""
    made = Pulse(api, nodes, f"pulse{next(_names)}")
    tasks: list[Any] = [made.run, made.look, made.reap]
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.close()
        for thread in threads:
            thread.join(timeout=10)
