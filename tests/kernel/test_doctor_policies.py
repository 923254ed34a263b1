"""`weft doctor` on a node whose network policies refuse what its pods send."""

from pathlib import Path

from tests.campaign.obstacles.world import FAMILIES, World, pod_address, world

# As `kernel.netfilter.policies` makes it: here it refuses pod1-1 all that it begins, in both families.
REFUSED = " ".join(
    f"nft 'add rule bridge weft-policy c ether type {'ip' if family == 4 else 'ip6'} ip{'' if family == 4 else '6'}"
    f" saddr {pod_address('pod1-1', family)} icmp{'' if family == 4 else 'v6'} type echo-request drop';"
    for family in FAMILIES
)
POLICIES = (
    "nft add table bridge weft-policy;"
    " nft 'add chain bridge weft-policy c { type filter hook prerouting priority 0; policy accept; }'; " + REFUSED
)


def codes(world: World) -> list[str]:
    return [each.code for each in world.doctor("node1").findings]


def test_what_policies_refuse_is_no_finding_and_hides_none(tmp_path: Path):
    with world(tmp_path, "vxlan") as made:
        made.run("node1", POLICIES)
        said = made.doctor("node1")
        assert not said.findings
        assert said.packets is not None
        assert said.packets.tried == said.packets.arrived > 0
        made.run("node1", f"ip route add blackhole {pod_address('pod1-2', 4)}")
        assert codes(made) == ["ROUTE-001"]
        assert "weft-trace" not in made.run("node1", "nft list tables")
