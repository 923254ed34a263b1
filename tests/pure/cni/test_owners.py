"""Comments that say whose a rule or an element is, byte for byte."""

import pytest

from weft.cni.attachment import owners
from weft.model.attachment import Attachment


def of(network: str = "unit-test", ifname: str = "eth0", container_id: str = "one") -> Attachment:
    return Attachment(network=network, container_id=container_id, ifname=ifname)


@pytest.mark.spec("cni.md G17")
@pytest.mark.parametrize(
    "attachment, digits",
    [
        (of(), "6fd94d501e58f0aa-287fc69eff0574a2"),
        (of("alternate", "net1", "three"), "82783ef24bdc7036-acb19d111858e348"),
    ],
)
def test_hashes_of_nft_comments(attachment, digits):
    assert owners.owner_of(attachment) == digits


@pytest.mark.spec("cni.md N1")
def test_an_nft_comment():
    comment = owners.comment_of(of())
    assert comment == "6fd94d501e58f0aa-287fc69eff0574a2, net: unit-test, if: eth0, id: one"
    assert comment.startswith(owners.owner_of(of()))
    assert len(owners.comment_of(of("n" * 100, container_id="c" * 100))) == 128
    assert len(owners.comment_of(of("n" + "ü" * 100)).encode()) == 127  # no half of a character
    assert "net: n?, " in owners.comment_of(of("n\udc80"))
    assert '"' not in owners.comment_of(of('n"'))


def test_what_is_lost_is_of_the_network_and_of_no_valid_attachment():
    is_lost = owners.lost("unit-test", [("one", "eth0"), ("two", "eth0")])
    assert not is_lost(owners.comment_of(of()))
    assert is_lost(owners.comment_of(of(container_id="three")))
    assert is_lost(owners.comment_of(of(ifname="eth1")))
    assert not is_lost(owners.comment_of(of("alternate", container_id="three")))
    assert owners.lost("unit-test", [])(owners.comment_of(of()))
