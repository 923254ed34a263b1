"""What tests of leaked attachments look at, and how an attachment is lost."""

import json
import time

from tests.support.cni.site import Site
from tests.support.netns import Netns
from weft.cni.host.host import Host
from weft.cni.leaks import sweep
from weft.cni.leaks.sweeper import node_host


def wait_for_turn(host: Host, container: str) -> None:
    """A server ends a container's turn a moment after its client has the answer; a turn that a test holds stays."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with host.claim(container) as claimed:
            if claimed:
                return
        time.sleep(0.005)


def sweep_all(site: Site) -> dict[str, str]:
    """What one sweep of the daemon frees, and why."""

    def inside() -> dict[str, str]:
        with node_host(site.node) as host:
            known = list(sweep.attachments(host))
            for one in known:
                wait_for_turn(host, one.container_id)
            proofs = {one.container_id: sweep.free(host, one) for one in known}
        return {id_: proof for id_, proof in proofs.items() if proof}

    return site.host.call(inside)


def addresses(site: Site, network: str = "cbr0") -> dict[str, str]:
    return {ip: owner.decode().partition("\r")[0] for ip, owner in site.reservations(network).items()}


def records(site: Site) -> set[str]:
    """The containers that anything is known of."""
    return {json.loads(path.read_text())["container"] for path in (site.directory / "state").rglob("*.json")}


def lose(pod: Netns) -> None:
    """What the end of a namespace does to the pair."""
    pod.run("ip link del eth0")
