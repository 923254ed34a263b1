"""Whether a block had a pod: by the addresses that host-local has given, also by the last one of pods that are gone."""

import pytest

from tests.pure.cluster.mesh.meshparts import HELD, FakeDisk, World, running, saved
from tests.support.waiting import comes
from weft.cluster.mesh.use import had_a_pod
from weft.model.mesh.effects import Own, Used

BLOCK = ("10.32.40.0/24", "fd00:40::/64")


@pytest.mark.parametrize(
    "name, content, ever",
    [
        ("lock", "", False),
        ("10.32.40.2", "container", True),
        ("10.32.41.2", "container", False),
        ("fd00:40::2", "container", True),
        ("last_reserved_ip.0", "10.32.40.9", True),
        ("last_reserved_ip.0", "10.32.41.9", False),
        ("last_reserved_ip.0", "", False),
    ],
)
def test_a_block_had_a_pod_if_an_address_of_it_was_given(tmp_path, name, content, ever):
    (tmp_path / "cbr0").mkdir()
    (tmp_path / "cbr0" / name).write_text(content)
    assert had_a_pod(BLOCK, tmp_path, neighbours(tmp_path)) is ever


def neighbours(tmp_path, *addresses):
    """A file of neighbours, with these alone."""
    file = tmp_path / "arp"
    lines = [f"{address:16} 0x1         0x2         0a:58:0a:20:28:02     *        cni0" for address in addresses]
    file.write_text(
        "\n".join(["IP address       HW type     Flags       HW address            Mask     Device", *lines, ""])
    )
    return file


@pytest.mark.parametrize("address, ever", [("10.32.40.7", True), ("192.168.1.1", False)])
def test_or_if_an_address_of_it_is_a_neighbours(tmp_path, address, ever):
    """Another plugin than host-local has given it."""
    assert had_a_pod(BLOCK, tmp_path / "none", neighbours(tmp_path, "192.168.1.2", address)) is ever


def test_without_records_there_was_none_and_what_cannot_be_read_counts_as_one(tmp_path):
    assert not had_a_pod(BLOCK, tmp_path / "none", neighbours(tmp_path))
    assert had_a_pod(BLOCK, tmp_path / "none", tmp_path / "unreadable")
    (tmp_path / "cbr0" / "last_reserved_ip.0").mkdir(parents=True)
    assert had_a_pod(BLOCK, tmp_path, neighbours(tmp_path))


async def test_the_core_is_told_of_each_block_and_when_that_changes(monkeypatch):
    monkeypatch.setattr("weft.cluster.mesh.peer._USE_SECONDS", 0.001)
    world = World(FakeDisk(saved(HELD)))

    def told():
        return [command.ever for call, *rest in world.core.calls for command in rest if isinstance(command, Used)]

    async with running(world):
        await comes(lambda: told() == [False])
        world.used.add("10.32.40.0/24")
        await comes(lambda: told() == [False, True])
        world.say(Own(home=41, usable=True))
        await comes(lambda: told() == [False, True, False])
