"""Reservations that got lost: a living pod's address is not given again, because the kernel knows who lives."""

import pytest

from tests.kernel.test_cni_flannel import REST, V4, V6, add, config, delete
from tests.support.cni.site import Site
from tests.support.spoiling import spoil
from weft.cni.attachment import podaddresses

TINY = V4.replace("/24", "/29") + V6.replace("/64", "/125") + REST


@pytest.fixture
def site(netns, tmp_path):
    site = Site(netns, tmp_path)
    (tmp_path / "subnet.env").write_text(TINY)
    return site


def given(answer) -> set[str]:
    assert answer.exit == 0, answer
    return {one["address"].partition("/")[0] for one in answer.result["ips"]}


def lose_all(site) -> None:
    """What a disk that was restored from yesterday does, and a start of the daemon after it."""
    for path in (site.store / "cbr0").iterdir():
        path.unlink()
    for path in list((site.directory / "state").rglob("*.json")):
        spoil(path, "random")
    site.restart()


def test_addresses_of_living_pods_are_not_given_again(site, make_netns):
    pods = {name: make_netns() for name in ("c1", "c2", "c3")}
    has = {name: given(add(site, config(site), pod, id_=name)) for name, pod in pods.items()}
    lose_all(site)
    for number in (4, 5):
        answer = add(site, config(site), make_netns(), id_=f"c{number}")
        assert given(answer).isdisjoint(set().union(*has.values()))
    assert len(site.reservations("cbr0")) == 4
    full = add(site, config(site), make_netns(), id_="c6")
    assert "no IP addresses available" in full.msg
    assert full.stderr.count("IPAM-003") == 1, "once a call, however many addresses it is true of"
    # A pod that ends gives its address free, reserved or not.
    assert delete(site, config(site), pods["c2"], id_="c2").exit == 0
    assert given(add(site, config(site), make_netns(), id_="c7")) & has["c2"] == {"10.1.17.3"}


def test_an_address_that_is_asked_for_is_not_taken_from_a_living_pod(site, make_netns):
    pod = make_netns()
    address = given(add(site, config(site), pod))
    lose_all(site)
    conf = config(site, runtimeConfig={"ips": sorted(address)})
    conf["delegate"]["capabilities"] = {"ips": True}
    args = f"IP={min(address, key=len)}"
    refused = add(site, conf, make_netns(), id_="c2", args=args)
    assert "is not available in range set" in refused.msg
    assert "a living pod has it" in refused.json["details"]


def test_the_kernel_is_asked_once_for_what_nobody_else_changes(site, make_netns, monkeypatch):
    asked = []
    addresses = podaddresses.addresses
    monkeypatch.setattr(podaddresses, "addresses", lambda rtnl: asked.append(1) or addresses(rtnl))
    for number in range(4):
        add(site, config(site), make_netns(), id_=f"c{number}")
    assert len(asked) <= 2, "at the first look, and after the directory was made"
