"""ipMasq with the real tools: rules there after ADD, gone after DEL, shared with the reference."""

from ipaddress import ip_interface

import pytest

from weft.cni.attachment import masq, owners, spoofcheck
from weft.cni.host import programs
from weft.model.attachment import Attachment

SETS = {"ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}
KINDS = ["", "iptables", "nftables"]


def config(site, kind, *, version="1.0.0", **more):
    conf = {"cniVersion": version, "name": "dbnet", "type": "bridge", "isDefaultGateway": True, "ipMasq": True, **more}
    if kind:
        conf["ipMasqBackend"] = kind
    return conf | {"ipam": {"type": "host-local", "dataDir": str(site.store), **SETS}}


def rules(site, kind):
    """The rules of CNI, as the tools print them."""
    if kind == "nftables":
        if "cni_plugins" not in site.host.run("nft list tables"):
            return []
        text = site.host.run("nft -n list chain inet cni_plugins_masquerade masq_checks")
        return [line.strip() for line in text.splitlines() if " masquerade " in line and "saddr" in line]
    saved = site.host.run("iptables-save -t nat; ip6tables-save -t nat")
    return [line for line in saved.splitlines() if line.startswith(("-A", ":CNI")) and "CNI-" in line]


@pytest.mark.spec("cni.md B19")
@pytest.mark.parametrize("kind", KINDS)
def test_rules_come_and_go(site, pod, kind):
    conf = config(site, kind)
    assert site.call("bridge", "ADD", conf, container=pod).exit == 0
    found = "\n".join(rules(site, kind))
    assert "10.1.2.2" in found
    assert "fd00::2" in found
    if kind == "nftables":
        assert 'ip saddr 10.1.2.2 ip daddr != 10.1.2.0/24 masquerade comment "77fa157b4f32b23b-' in found
    else:
        chain = masq.chain_of("dbnet", "c1")
        comment = '-m comment --comment "name: \\"dbnet\\" id: \\"c1\\""'
        for line in (
            f"-A POSTROUTING -s 10.1.2.2/32 {comment} -j {chain}",
            f"-A {chain} -d 10.1.2.0/24 {comment} -j ACCEPT",
            f"-A {chain} ! -d 224.0.0.0/4 {comment} -j MASQUERADE",
            f"-A POSTROUTING -s fd00::2/128 {comment} -j {chain}",
            f"-A {chain} -d fd00::/64 {comment} -j ACCEPT",
            f"-A {chain} ! -d ff00::/8 {comment} -j MASQUERADE",
        ):
            assert line in found
    assert site.call("bridge", "DEL", conf, container=pod).exit == 0
    assert rules(site, kind) == []
    assert site.call("bridge", "DEL", conf, container=pod).exit == 0


@pytest.mark.spec("cni.md B19")
def test_the_nft_table_as_it_is_known(site, pod):
    site.call("bridge", "ADD", config(site, "nftables"), container=pod)
    text = " ".join(site.host.run("nft list table inet cni_plugins_masquerade").split())
    assert 'comment "Masquerading for plugins from github.com/containernetworking/plugins"' in text
    assert 'comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"' in text
    assert (
        "chain postrouting { type nat hook postrouting priority srcnat; policy accept; "
        "ip daddr 224.0.0.0/4 return ip6 daddr ff00::/8 return goto masq_checks }"
    ) in text


ONE = Attachment(network="unit-test", container_id="one", ifname="eth0")
FOUR = Attachment(network="unit-test", container_id="four", ifname="eth0")
ADDRESS = ip_interface("192.168.1.1/24")


@pytest.mark.spec("cni.md N1")
def test_a_rule_of_nft_word_for_word(site):
    site.host.call(lambda: masq.add(ONE, "nftables", [ADDRESS]))
    comment = "6fd94d501e58f0aa-287fc69eff0574a2, net: unit-test, if: eth0, id: one"
    wanted = f'ip saddr 192.168.1.1 ip daddr != 192.168.1.0/24 masquerade comment "{comment}"'
    assert rules(site, "nftables") == [wanted]


@pytest.mark.spec("cni.md N2")
@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_the_successor_of_an_address_keeps_its_masquerade(site, kind):
    """DEL of the predecessor may come late, or again."""
    for attachment in (ONE, FOUR):
        site.host.call(lambda attachment=attachment: masq.add(attachment, kind, [ADDRESS]))
    both = rules(site, kind)
    for _ in range(2):
        site.host.call(lambda: masq.remove(ONE, kind, [ADDRESS]))
    key = owners.owner_of(Attachment(network="unit-test", container_id="four", ifname="eth0"))
    mark = key if kind == "nftables" else masq.chain_of("unit-test", "four")
    assert rules(site, kind) == [rule for rule in both if mark in rule]
    assert site.host.call(lambda: masq.is_there(FOUR, kind, ADDRESS))
    assert not site.host.call(lambda: masq.is_there(ONE, kind, ADDRESS))


def test_one_of_two_with_nft(site, pod, make_netns):
    conf = config(site, "nftables")
    site.call("bridge", "ADD", conf, container=pod)
    site.call("bridge", "ADD", conf, container=make_netns(), id_="c2")
    before = site.host.run("nft -a list chain inet cni_plugins_masquerade postrouting")
    site.call("bridge", "DEL", conf, container=pod)
    assert "10.1.2.2" not in "".join(rules(site, "nftables"))
    assert "10.1.2.3" in "".join(rules(site, "nftables"))
    assert site.host.run("nft -a list chain inet cni_plugins_masquerade postrouting") == before  # not filled anew


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["", "/run/netns/gone"])
@pytest.mark.parametrize("forgotten", [False, True])
def test_rules_go_although_the_namespace_has_gone(site, pod, kind, path, forgotten):
    conf = config(site, kind)
    result = site.call("bridge", "ADD", conf, container=pod).result
    if forgotten:
        for record in (site.directory / "state").rglob("*.json"):
            record.unlink()
        conf["prevResult"] = result
    assert site.call("bridge", "DEL", conf, netns=path).exit == 0
    assert rules(site, kind) == []


def test_only_the_program_of_the_pods_family_is_started(site, pod, monkeypatch):
    """DEL of a pod with IPv4 alone does without ip6tables, which a host may lack."""
    asked = []
    run = programs.run
    monkeypatch.setattr(
        programs, "run", lambda program, *rest, **more: asked.append(program) or run(program, *rest, **more)
    )
    conf = config(site, "iptables")
    conf["ipam"]["ranges"] = SETS["ranges"][:1]
    for container in (pod, None):  # by its own address, and by our record
        assert site.call("bridge", "ADD", conf, container=pod).exit == 0
        assert site.call("bridge", "DEL", conf, container=container).exit == 0
        assert rules(site, "iptables") == []
    assert [program for program in asked if program.startswith("ip6")] == []
    assert "iptables-restore" in asked


@pytest.mark.parametrize("kind", ["iptables", "nftables"])
def test_del_succeeds_when_the_sweep_removes_the_same_rules_meanwhile(site, pod, kind, monkeypatch):
    conf = config(site, kind, macspoofchk=True)
    assert site.call("bridge", "ADD", conf, container=pod).exit == 0
    run, meanwhile = programs.run, []
    mine = Attachment(network="dbnet", container_id="c1", ifname="eth0")

    def overtaken(program, *arguments, **more):
        text = run(program, *arguments, **more)
        looked = " ".join((program, *arguments))
        if ("-save" in looked or "list table " in looked or "list ruleset" in looked) and looked not in meanwhile:
            meanwhile.append(looked)
            spoofcheck.remove([mine])
            masq.remove(mine, kind, ())
        return text

    monkeypatch.setattr(programs, "run", overtaken)
    assert site.call("bridge", "DEL", conf, container=pod).msg == ""
    assert len(meanwhile) > 1
    assert rules(site, kind) == []


def test_a_second_interface_keeps_its_rules_when_the_first_goes(site, pod):
    conf = config(site, "iptables")
    site.call("bridge", "ADD", conf, container=pod)
    site.call("bridge", "ADD", conf | {"isDefaultGateway": False, "isGateway": True}, container=pod, ifname="eth1")
    assert site.call("bridge", "DEL", conf, container=pod).exit == 0
    left = "\n".join(rules(site, "iptables"))
    assert "10.1.2.3" in left
    assert "10.1.2.2/32" not in left
    assert "MASQUERADE" in left
    assert site.call("bridge", "DEL", conf, container=pod, ifname="eth1").exit == 0
    assert rules(site, "iptables") == []


def test_the_reference_takes_over_and_back(site, pod):
    conf = config(site, "", version="1.0.0")
    assert site.call("bridge", "ADD", conf, container=pod).exit == 0
    ours = rules(site, "")
    assert site.via("debian")("bridge", "DEL", conf, container=pod).exit == 0
    assert rules(site, "") == []
    for path in site.store.rglob("last_reserved*"):
        path.unlink()
    assert site.via("debian")("bridge", "ADD", conf, container=pod).exit == 0
    assert sorted(rules(site, "")) == sorted(ours)
    assert site.call("bridge", "DEL", conf, container=pod).exit == 0
    assert rules(site, "") == []


def test_nothing_stays_when_the_tool_refuses(site, pod, monkeypatch):
    real = programs.find
    monkeypatch.setattr(programs, "find", lambda name, path: None if name == "ip6tables-restore" else real(name, path))
    answer = site.call("bridge", "ADD", config(site, "iptables"), container=pod)
    assert answer.msg == "ip6tables-restore: program not found"
    assert rules(site, "iptables") == []
    assert site.reservations("dbnet") == {}
    assert [link["ifname"] for link in pod.json("ip -j link")] == ["lo"]


BYTES_ON_A_BRIDGE = r"""
printf 'add table bridge nat; add chain bridge nat y; add rule bridge nat y drop comment "\xff"' | nft -f -"""
BYTES_IN_NAT = r"""
iptables -t nat -A POSTROUTING -s 192.0.2.1 -m comment --comment "$(printf '\377')" -j ACCEPT"""


@pytest.mark.parametrize("others", [BYTES_ON_A_BRIDGE, BYTES_IN_NAT], ids=["nft", "iptables"])
def test_comments_of_others_need_not_be_text(site, pod, others):
    site.host.run(others)
    conf = config(site, "iptables", macspoofchk=True)
    for verb in ("ADD", "DEL"):
        answer = site.call("bridge", verb, conf, container=pod)
        assert answer.exit == 0, answer.json
    assert site.host.run("iptables-save -t nat | grep -ac CNI- || true").strip() == "0"
