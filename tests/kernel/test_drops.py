"""What `weft drops` says where the kernel has no monitor: which counters have grown, of rules and of the kernel."""

from ipaddress import ip_address
from pathlib import Path

from tests.support.netns import Netns
from weft.diag.drops.sources import Counted
from weft.diag.sight.look import Places
from weft.diag.trace.sending import send

HERE, NUMBERS = ip_address("127.0.0.1"), [1, 3, 5]
DROPS = (
    "nft 'add table ip x; add chain ip x p { type filter hook input priority 0; };"
    " add rule ip x p udp dport 7 counter drop'"
)


def test_what_grows_is_told_once(netns: Netns, tmp_path: Path):
    netns.run(DROPS)
    places = Places(subnet_file=tmp_path / "subnet.env", conf_dir=tmp_path, data_dir=tmp_path, run=tmp_path)
    counted = netns.call(lambda: Counted(places))
    for port in (7, 9):  # by the rule, and because nothing listens
        netns.call(lambda port=port: send(HERE, HERE, kind="udp", port=port, numbers=NUMBERS))
    found = {each.reason: each for each in netns.call(lambda: list(counted.losses()))}
    rule = found["rule"]
    assert (rule.count, rule.code, rule.rule) == (3, "FW-002", "rule 1 of ip x, in chain p")
    assert (found["Udp.NoPorts"].count, found["Udp.NoPorts"].code) == (3, "VTEP-004")
    assert netns.call(lambda: list(counted.losses())) == []
