"""Removals, returns and leaving: rows S9, S10 and S12 of the specification."""

import contextlib
import itertools

import pytest

from tests.pure.mesh.test_faults import agree, codes, everybody_has_a_block, mesh, up
from tests.support.mesh.checks import Broken
from tests.support.mesh.world import World
from weft.mesh.removal import missing
from weft.mesh.removing import Removing
from weft.model.errors import ConfigError
from weft.model.mesh import effects as do
from weft.model.mesh.messages import Ack, Records
from weft.model.mesh.records import Token
from weft.model.value import replace


def remove(world: World, by: str, *names: str, force: bool = False) -> None:
    world.ask(by, do.Remove(keys=tuple(world.nodes[name].key for name in names), force=force))


def tell(world: World, source: str, target: str, records: Records) -> None:
    """As if one had sent it to another just now."""
    node = world.nodes[target]
    (link,) = (number for number, hello in node.core.links.items() if hello.key == world.nodes[source].key)
    world._call(node, node.life, lambda core, now: core.received(link, records, now))


def heirs(world: World, name: str) -> set[bytes]:
    key = world.nodes[name].key
    return {removal.heir for node in up(world) for removal in node.core.removals if removal.key == key}


def removed(world: World, name: str) -> bool:
    key = world.nodes[name].key
    return all(any(removal.key == key for removal in node.core.removals) for node in up(world))


def one_is_dead(seed: str, count: int) -> World:
    """The last of them is dead for good."""
    world = mesh(seed, count)
    world.kill("abcdefghij"[count - 1])
    world.run(15)
    return world


@pytest.mark.parametrize("by", ["b", "bc", "abcd"])
@pytest.mark.parametrize("seed", range(2))
def test_s9_the_dead_one_has_one_heir_however_many_remove_it(by, seed):
    world = one_is_dead(f"S9 {by} {seed}", 6)
    for name in by:
        with contextlib.suppress(ConfigError):  # if another one was quicker
            remove(world, name, "f")
        world.run(0.02 * world.chance.random())
    assert world.run(90, until=lambda: removed(world, "f") and agree(world))
    assert len(heirs(world, "f")) == 1
    world.run(60)
    assert all(node.core.kept.promise is None and node.core.kept.proposal is None for node in up(world))
    assert world.nodes["f"].key not in {token.owner for token in world.nodes["a"].core.tokens}


def test_others_hear_that_a_removal_came_about_and_was_not_withdrawn():
    """Else their promises end before they know what the heir has claimed."""
    world = one_is_dead("done", 4)
    remove(world, "a", "d")
    assert world.run(90, until=lambda: removed(world, "d") and agree(world))
    key = world.nodes["a"].key
    for node in up(world):
        assert node.core.members[key].done == node.core.members[key].over > 0


def test_who_hears_of_a_removal_proposes_none_with_a_lower_number():
    """Its claims would be below what the heir, should it come back, still writes."""
    world = one_is_dead("numbers", 3)
    remove(world, "a", "c")
    assert world.run(90, until=lambda: removed(world, "c") and agree(world))
    world.add("d", ["b"])
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    (removal,) = world.nodes["a"].core.removals
    assert world.nodes["d"].core.kept.number >= removal.number > 0


def test_what_turns_up_later_of_a_removed_peer_is_its_heirs_and_rests():
    world = one_is_dead("late", 3)
    key = world.nodes["c"].key
    remove(world, "a", "c")
    assert world.run(90, until=lambda: removed(world, "c") and agree(world))
    node = world.nodes["a"]
    theirs = next(token for token in node.core.tokens if token.owner == world.nodes["b"].key)
    late = replace(theirs, start=theirs.stop - 1, owner=key, version=theirs.version + 1)
    tell(world, "b", "a", Records(tokens=(late,)))
    run = (late.start, late.stop)
    assert [token.owner for token in node.core.tokens if token.start == late.start] == [node.key]
    assert run in node.core.kept.resting


def test_a_home_that_a_removal_has_taken_is_not_taken_back_before_the_removal_is_heard_of():
    world = mesh("not yet", 2)
    node = world.nodes["b"]
    home = node.core.kept.home
    claim = Token(start=home, stop=home + 1, owner=world.nodes["a"].key, version=5 << 32)
    tell(world, "a", "b", Records(tokens=(claim,)))
    assert claim in node.core.tokens
    assert not codes(node)


def test_a_home_that_another_has_without_living_there_stays():
    """Rule 8: an old disk, or a removal by force, has given it away."""
    world = mesh("rule 8", 2)
    node = world.nodes["b"]
    home = node.core.kept.home
    theirs = Token(start=home, stop=home + 1, owner=world.nodes["a"].key, version=9)
    tell(world, "a", "b", Records(tokens=(theirs,)))
    assert world.run(10, until=lambda: "MESH-009" in codes(node) and agree(world))
    assert node.core.kept.home == home
    assert Token(start=home, stop=home + 1, owner=node.key, version=10) in node.core.tokens


@pytest.mark.parametrize("lower", [True, False])
def test_of_two_that_live_in_one_block_the_lower_key_stays(lower):
    world = mesh("rule 8 twice", 2)
    low, high = sorted(world.nodes.values(), key=lambda node: node.key)
    node, other = (low, high) if lower else (high, low)
    home = node.core.kept.home
    theirs = Token(start=home, stop=home + 1, owner=other.key, version=9)
    member = replace(node.core.members[other.key], home=home, version=1 << 40)
    tell(world, other.name, node.name, Records(members=(member,)))
    tell(world, other.name, node.name, Records(tokens=(theirs,)))
    assert world.run(1, until=lambda: "MESH-009" in codes(node))
    assert (node.core.kept.home == home) == lower
    [said] = [say for say in node.said if say.problem and say.problem.code == "MESH-009"]
    assert said.blocks == ((home, home + 1),)
    assert said.problem.seen.startswith(f"{other.name}-{other.key[:4].hex()} has this subnet, too")
    assert ("other node takes" if lower else "Start its pods again") in said.problem.hint


@pytest.mark.parametrize("groups", [("a", "bcde"), ("ab", "cde")])
def test_s9_while_a_peer_is_away_both_sides_wait_and_name_it(groups):
    world = one_is_dead(f"S9 {groups}", 6)
    world.part(*groups)
    world.run(15)
    for side in groups:
        remove(world, side[0], "f")
    world.run(120)
    assert not any(list(node.core.removals) for node in up(world))
    for side, other in itertools.permutations(groups):
        waits = [say.text for say in world.nodes[side[0]].said if "waits for" in say.text]
        assert all(name in waits[-1] for name in other)
    world.heal()
    assert world.run(120, until=lambda: removed(world, "f") and agree(world))
    assert len(heirs(world, "f")) == 1


def test_a_removal_that_waits_is_withdrawn_and_another_one_comes_about():
    world = one_is_dead("withdrawn", 5)
    world.part("abc", "d")
    world.run(15)
    remove(world, "a", "e")
    world.run(10)
    assert all(world.nodes[name].core.kept.promise for name in "bc")
    world.ask("a", do.Withdraw())
    with pytest.raises(ConfigError, match="no removal by this node waits"):
        world.ask("a", do.Withdraw())
    assert world.run(5, until=lambda: not any(world.nodes[name].core.kept.promise for name in "bc"))
    assert not any(list(node.core.removals) for node in up(world))
    world.heal()
    world.run(30)
    remove(world, "b", "e")
    assert world.run(60, until=lambda: removed(world, "e") and agree(world))
    assert heirs(world, "e") == {world.nodes["b"].key}


def test_s9_a_peer_that_joined_unseen_is_asked_too():
    world = one_is_dead("S9 unseen", 6)
    world.part("a", "bcdef")
    world.run(15)
    world.add("n", ["c"])
    world.part("a", ["n"])
    assert world.run(30, until=lambda: bool(world.nodes["n"].own and world.nodes["n"].own.usable))
    world.heal()
    remove(world, "a", "f")
    asked = set()
    world.watchers.append(lambda node, effect: asked.add(node.name) if "Propose" in str(effect) else None)
    assert world.run(120, until=lambda: removed(world, "f") and agree(world))
    assert world.nodes["n"].disk.removals


def test_a_removal_is_refused_where_it_makes_no_sense():
    world = one_is_dead("refused", 3)
    with pytest.raises(ConfigError, match="answers"):
        remove(world, "a", "b")
    with pytest.raises(ConfigError, match="this node itself"):
        remove(world, "a", "a")
    with pytest.raises(ConfigError, match="no peer of this mesh"):
        world.ask("a", do.Remove(keys=(bytes(32),)))
    world.kill("b")
    world.run(15)
    with pytest.raises(ConfigError, match="would remain"):
        remove(world, "a", "b", "c")


def test_a_forced_removal_does_not_wait():
    world = one_is_dead("forced", 4)
    world.kill("c")
    world.run(15)
    remove(world, "a", "d", force=True)
    assert world.run(20, until=lambda: removed(world, "d"))


def test_a_removal_is_given_up_when_its_peer_answers():
    world = one_is_dead("answers", 4)
    world.kill("c")
    world.run(15)
    remove(world, "a", "d")
    world.run(10)
    world.start("d")
    assert world.run(60, until=lambda: any("nobody is removed" in say.text for say in world.nodes["a"].said))
    world.run(15)
    assert all(node.core.kept.promise is None for node in up(world))


def test_a_removal_goes_on_after_a_restart_of_who_has_asked_for_it():
    world = one_is_dead("goes on", 4)
    world.part("ab", "c")
    remove(world, "a", "d")
    world.run(10)
    world.kill("a")
    world.start("a")
    world.heal()
    assert world.run(60, until=lambda: removed(world, "d"))


def test_inherited_blocks_rest_for_an_hour():
    world = mesh("rest", 3, blocks=8)  # a has 2 and 3
    dead = world.nodes["c"].core.kept.home
    world.kill("c")
    world.run(15)
    remove(world, "a", "c")
    world.run(10)
    world.add("n", ["b"])
    world.run(1800)
    home = world.nodes["n"].own.home
    assert home != dead
    world.add("o", ["b"])
    world.run(1900)
    assert world.nodes["o"].own.home is not None or home is not None


@pytest.mark.parametrize("seed", range(2))
def test_s10_a_removed_peer_that_returns_drops_its_blocks_and_joins_as_another(seed):
    world = one_is_dead(f"S10 {seed}", 4)
    key = world.nodes["d"].key
    remove(world, "b", "d")
    assert world.run(60, until=lambda: removed(world, "d"))
    world.start("d")
    assert world.run(60, until=lambda: world.nodes["d"].key != key and everybody_has_a_block(world) and agree(world))
    assert "MESH-005" in codes(world.nodes["d"])
    assert key not in world.nodes["a"].leases


def test_s10_who_is_killed_between_the_word_of_its_removal_and_its_new_key_joins_as_another_at_the_next_start():
    world = one_is_dead("S10 killed", 4)
    node = world.nodes["d"]
    key, killed = node.key, []

    def kill(other, effect):
        if other is node and isinstance(effect, do.Rekey) and not killed:
            killed.append(effect)
            world.at(world.now, world.kill, "d")

    remove(world, "b", "d")
    assert world.run(60, until=lambda: removed(world, "d"))
    world.before.append(kill)
    world.start("d")
    assert world.run(60, until=lambda: bool(killed) and not node.up)
    assert (node.up, node.key) == (False, key)
    world.start("d")
    assert world.run(60, until=lambda: node.key != key and everybody_has_a_block(world) and agree(world))


def test_two_that_removed_each_other_agree_on_one():
    world = mesh("each other", 2)
    world.part("a", "b")
    world.run(15)
    remove(world, "a", "b")
    remove(world, "b", "a")
    world.run(10)
    world.heal()
    assert world.run(60, until=lambda: agree(world) and len({node.key for node in up(world)}) == 2)
    world.run(3600)  # what both have claimed of each other rests
    assert world.run(60, until=lambda: agree(world) and everybody_has_a_block(world))
    assert len({node.own.home for node in up(world)}) == 2


@pytest.mark.parametrize("seed", range(1))
def test_s12_a_peer_that_leaves_gives_all_to_another(seed):
    world = mesh(f"S12 {seed}", 5)
    world.weather.loss = 0.1
    leaver = world.nodes["c"]
    world.ask("c", do.Leave())
    assert world.run(60, until=lambda: any(say.text == "left the mesh" for say in leaver.said))
    world.run(5)
    world.kill("c")
    world.weather.loss = 0.0
    assert world.run(60, until=lambda: agree(world))
    tokens = list(world.nodes["a"].core.tokens)
    assert leaver.key not in {token.owner for token in tokens}
    assert leaver.key not in world.nodes["a"].core.members
    assert leaver.key not in world.nodes["a"].leases
    assert tokens[0].start == 2
    assert tokens[-1].stop == 64


def test_s12_many_come_and_go_and_all_blocks_are_those_of_who_stays():
    """Half of those that go leave one after another, the others are dead and removed by one command."""
    world = mesh("S12", 1, blocks=4096)
    stay = ["a", *(f"s{number}" for number in range(1, 6))]
    joined = come(world, stay[1:])
    for turn in range(3):
        names = [f"{turn}-{number}" for number in range(4)]
        joined += come(world, names)
        leave, die = names[::2], names[1::2]
        for name in leave:
            world.ask(name, do.Leave())
            said = world.nodes[name].said
            assert world.run(60, until=lambda said=said: any(say.text == "left the mesh" for say in said))
            world.run(1)  # so that others hear of it
            world.kill(name)
        for name in die:
            world.kill(name)
        world.run(15)
        remove(world, "a", *die)
        assert world.run(120, until=lambda die=die: all(removed(world, name) for name in die) and agree(world))
        owners = {token.owner for token in world.nodes["a"].core.tokens}
        assert owners == {world.nodes[name].key for name in stay}
    assert sorted(joined)[int(len(joined) * 0.99) - 1] < 2


def come(world: World, names: list[str]) -> list[float]:
    """So many seconds after its start each has its block."""
    took = []
    for name in names:
        began = world.now
        node = world.add(name, ["a"])
        assert world.run(60, until=lambda node=node: node.own is not None and node.own.usable)
        took.append(world.now - began)
    assert world.run(60, until=lambda: agree(world))
    return took


def test_leaving_is_refused_where_nobody_could_take_the_blocks():
    world = mesh("alone", 1)
    with pytest.raises(ConfigError, match="alone"):
        world.ask("a", do.Leave())


def test_leaving_goes_on_after_a_restart():
    world = mesh("leaving", 3)
    world.ask("b", do.Leave())
    world.run(0.01)
    world.kill("b", written=True)
    world.start("b")
    assert world.run(60, until=lambda: any(say.text == "left the mesh" for say in world.nodes["b"].said))


def test_an_heir_that_does_not_answer_is_waited_for_as_long_as_links_lead_to_it():
    world = mesh("slow", 3)
    world.weather.loss = 1.0
    world.ask("b", do.Leave())
    world.run(8)
    world.weather.loss = 0.0
    assert world.run(60, until=lambda: any(say.text == "left the mesh" for say in world.nodes["b"].said))


# --- What happens without one of the rules


def test_s9_removals_by_a_majority_are_seen(monkeypatch):
    """Of a, b, c, d and e, split into a, b and c, d, while two join on either side, each has four of six that live."""

    def majority(proposal, known, promised, removals):
        living = [key for key in known if key not in proposal.names and not removals.is_removed(key)]
        enough = 2 * (len(promised) + 1) > len(living)
        return frozenset() if enough else missing(proposal, known, promised, removals)

    monkeypatch.setattr("weft.mesh.removing.missing", majority)
    world = one_is_dead("majority", 5)
    sides = {"a": ["a", "b"], "c": ["c", "d"]}
    world.part(*sides.values())
    for number in range(4):
        side = "ac"[number % 2]
        sides[side].append(f"n{number}")
        world.add(f"n{number}", [side])
        world.part(*sides.values())
    assert world.run(60, until=lambda: all(node.own and node.own.usable for node in up(world)))
    for name in sides:
        remove(world, name, "e")
    with pytest.raises(Broken, match="C1"):
        world.run(60)


def test_s9_removals_without_promises_are_seen(monkeypatch):
    """All that are asked agree, and go on as before."""

    def agrees(self, asked):
        known = self._state.known
        return Ack(tokens=tuple(known.tokens), removals=tuple(known.removals), peers=tuple(sorted(known.members)))

    monkeypatch.setattr(Removing, "answer", agrees)
    world = one_is_dead("no promises", 5)
    for name in "ab":
        remove(world, name, "e")
    with pytest.raises(Broken, match="C1"):
        world.run(60)
