"""Whose the attachments are that a daemon has not seen begin: by records, and by what the runtime remembers."""

import json
import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.cni.attachment.living import attachments
from weft.cni.host.files import RootedFiles
from weft.cni.runtime.cache import Cache
from weft.cni.sdk.record import key_of
from weft.desired.policy.inputs import UNKNOWN
from weft.kernel.rtnetlink.netlink import NetlinkError
from weft.model.attachment import Attachment
from weft.model.kernel.marks import POD_ALIAS
from weft.wire.cnicache import Entry
from weft.wire.cnichain import RuntimeConf

ATTACHMENT = Attachment(network="cbr0", container_id="c1", ifname="eth0")
KEY = key_of(ATTACHMENT)
NAMED = (("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web"), ("K8S_POD_UID", "u-1"))


class Machine:
    """One attachment, whose pod has given itself another address, too."""

    def __init__(self, folder: Path, root: int) -> None:
        self.folder = folder / "state"
        (self.folder / "attachments").mkdir(parents=True)
        self.state = RootedFiles(root)
        self.cache = Cache(directory=folder / "cni")
        self.gone = False
        self.rtnl = SimpleNamespace(links=lambda: [self.link, self.bridge], addresses=self.addresses)
        self.bridge = SimpleNamespace(index=3, name="cni0", alias="", peer_netns=-1, link=0, master=0)
        self.link = SimpleNamespace(index=7, name="veth1", alias=POD_ALIAS + KEY, peer_netns=4, link=2, master=3)

    def addresses(self, *_: object, **__: object) -> list[Any]:
        if self.gone:
            raise NetlinkError(2)
        return [SimpleNamespace(ip=ip_address(each)) for each in ("127.0.0.1", "fe80::1", "10.5.1.2", "10.5.1.77")]

    def keeps(self, subject: str = "attachments", **known: Any) -> None:
        (self.folder / subject).mkdir(exist_ok=True)
        whole = {"network": "cbr0", "container": "c1", "ifname": "eth0", **known}
        (self.folder / subject / f"{KEY}.json").write_text(json.dumps(whole))

    def remembers(self, *args: tuple[str, str]) -> None:
        conf = RuntimeConf(container_id="c1", ifname="eth0", args=args)
        self.cache.save(Entry(network="cbr0", conf=conf, config=b"", result={}))

    def who(self) -> tuple[str, str, list[str]]:
        [found] = attachments(self, self.cache).values()  # type: ignore[arg-type] - as much of it as is asked
        return found.pod, found.uid, [str(ip) for ip in found.ips]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "state").mkdir()
    root = os.open(tmp_path / "state", os.O_PATH)
    yield Machine(tmp_path, root)
    os.close(root)


def test_a_record_says_which_pod_it_is_of(machine):
    machine.keeps(veth="veth1", pod="shop/web", uid="u-1", asked=True)
    assert machine.who() == ("shop/web", "u-1", ["10.5.1.2", "10.5.1.77"])
    machine.keeps("ipam", addresses=["10.5.1.2"])
    assert machine.who() == ("shop/web", "u-1", ["10.5.1.2"])


def test_an_address_that_a_pod_gave_itself_is_not_its_own_where_a_record_says_others(machine):
    machine.keeps(veth="veth1", pod="shop/web", asked=True, masq="nft", addresses=["10.5.1.2/24"])
    assert machine.who() == ("shop/web", "", ["10.5.1.2"])


def test_what_was_asked_about_and_is_no_pod_is_none(machine):
    machine.keeps(veth="veth1", asked=True)
    machine.remembers(*NAMED)
    assert machine.who()[0] == ""


@pytest.mark.parametrize("lost", [False, True])
def test_a_record_of_an_earlier_weft_or_none_is_made_up_for_by_the_runtimes(machine, lost):
    if not lost:
        machine.keeps(veth="veth1")
    machine.keeps("ipam", addresses=["10.5.1.2"])
    machine.remembers(*NAMED)
    assert machine.who() == ("shop/web", "u-1", ["10.5.1.2"])
    machine.remembers(("IgnoreUnknown", "1"))
    assert machine.who() == ("", "", ["10.5.1.2"]), "no pod of Kubernetes"


def test_without_both_it_is_unknown_and_has_what_it_was_given_alone(machine):
    machine.keeps(veth="veth1")
    assert machine.who() == (UNKNOWN, "", [])
    machine.keeps("ipam", addresses=["10.5.1.2"])
    assert machine.who() == (UNKNOWN, "", ["10.5.1.2"])


def test_one_whose_namespace_is_gone_is_left_out(machine):
    machine.gone = True
    assert attachments(machine, machine.cache) == {}  # type: ignore[arg-type] - as much of it as is asked
