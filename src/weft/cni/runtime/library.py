"""A CNI runtime as a library: networks, their plugins, and what is remembered of attachments (cni.md §2).

    runtime = Runtime(run=Programs(paths=["/opt/cni/bin"], env=os.environ))
    network = load(Path("/etc/cni/net.d"), "cbr0").network
    outcome = runtime.add(network, RuntimeConf(container_id="c1", netns="/run/netns/c1", ifname="eth0"))

It does what libcni does, with the same cache, so that an attachment may be made by one and ended by the other. All
calls block, and raise `CniError`: the code of the plugin that failed, or 999. A runtime calls no two of one container
at a time, and no ADD or DEL of a network beside its garbage collection.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

from weft.cni.runtime.cache import Cache, Listing
from weft.cni.runtime.conf import Found, load, load_all
from weft.cni.runtime.execute import Programs
from weft.model.value import Value, field
from weft.wire import cnichain
from weft.wire.cni import CniError, Ran, failure
from weft.wire.cnicache import Entry
from weft.wire.cnichain import Chain, Outcome, RuntimeConf, Step
from weft.wire.cnilist import NetworkList, PluginConf, from_single, parse_list

__all__ = [
    "Cache",
    "CniError",
    "Entry",
    "Found",
    "Listing",
    "NetworkList",
    "Outcome",
    "PluginConf",
    "Programs",
    "Ran",
    "Runtime",
    "RuntimeConf",
    "Step",
    "from_single",
    "load",
    "load_all",
    "parse_list",
]

T = TypeVar("T")


class Runtime(Value):
    run: Callable[[Step], Ran]
    cache: Cache = field(default_factory=Cache)

    def add(self, network: NetworkList, conf: RuntimeConf) -> Outcome:
        """Attach a container and remember it.

        When a plugin fails what the others made stays, and DEL must follow (cni.md §1.9). When the attachment cannot be
        remembered it is undone: no later call would know of it.
        """
        outcome = self._drive(cnichain.add(network, conf))
        entry = Entry(network=network.name, conf=conf, config=network.raw, result=outcome.obj)
        try:
            self.cache.save(entry)
        except (CniError, OSError) as error:
            reason = f'failed to set network "{network.name}" cached result: {error}'
            try:
                self._drive(cnichain.delete(network, conf, outcome.obj if network.at_least("0.4.0") else None))
            except CniError as left:
                raise failure(reason, f"the attachment is still there, because {left}") from error
            raise failure(reason, "the attachment has been undone") from error
        return outcome

    def delete(self, network: NetworkList, conf: RuntimeConf) -> None:
        """Detach a container and forget it. May be repeated; what is remembered stays until all plugins succeed."""
        previous = None
        if network.at_least("0.4.0"):
            with suppress(CniError):
                previous = self.cache.previous(network, conf)
        self._drive(cnichain.delete(network, conf, previous))
        with suppress(CniError, OSError):
            self.cache.forget(network.name, conf.container_id, conf.ifname)

    def check(self, network: NetworkList, conf: RuntimeConf) -> None:
        """Have the plugins verify an attachment. Nothing is asked of a network with `disableCheck`."""
        if not network.at_least("0.4.0"):
            raise failure(f'configuration version "{network.version}" does not support the CHECK command')
        if network.disable_check:
            return
        try:
            previous = self.cache.previous(network, conf)
        except CniError as error:
            raise failure(f'failed to get network "{network.name}" cached result: {error}') from error
        self._drive(cnichain.check(network, conf, previous))

    def collect_garbage(self, network: NetworkList, valid: Collection[tuple[str, str]] | None) -> None:
        """Free what belongs to no valid attachment, each a container id and an interface.

        What is remembered of others is ended by DEL; from version 1.1.0 on the plugins are then asked. None and an
        empty list both mean that nothing is valid; with None the plugins get no list. All failures are raised together.
        """
        if network.disable_gc:
            return
        known = self.cache.entries()
        failed = [failure(f"cannot tell what is attached: {line}") for line in known.unreadable]
        for entry in known.entries:
            conf = entry.conf
            if entry.network != network.name or (conf.container_id, conf.ifname) in (valid or ()):
                continue
            try:
                self.delete(network, conf)
            except CniError as error:
                stale = f"failed to delete stale attachment {conf.container_id} {conf.ifname}: {error.msg}"
                failed.append(CniError(error.code, stale, error.details))
        if network.at_least("1.1.0"):
            failed += self._drive(cnichain.collect_garbage(network, valid))
        if len(failed) == 1:
            raise failed[0]
        if failed:
            raise failure("\n".join(map(str, failed)))

    def status(self, network: NetworkList) -> None:
        """Ask whether an ADD could be served now: code 50 or 51 if not. Before version 1.1.0 no plugin can be asked."""
        if network.at_least("1.1.0"):
            self._drive(cnichain.status(network))

    def versions(self, plugin: str) -> tuple[str, ...]:
        return self._drive(cnichain.versions(plugin))

    def validate(self, network: NetworkList) -> frozenset[str]:
        """Make sure that all plugins are there and speak the network's version; returns the capabilities declared."""
        return self._drive(cnichain.validate(network))

    def _drive(self, chain: Chain[T]) -> T:
        try:
            step = next(chain)
            while True:
                try:
                    ran = self.run(step)
                except CniError as error:
                    step = chain.throw(error)
                else:
                    step = chain.send(ran)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
