"""Policies are put into a lab, or taken from it, while it runs."""

from weft.lab.inside.cluster import World
from weft.lab.manifests import name_of
from weft.lab.protocol import SetPolicies
from weft.model.errors import ConfigError, Problem, Unavailable
from weft.model.text import one_of


async def change(world: World, wanted: SetPolicies) -> None:
    """`ConfigError` changes nothing; `Unavailable` names nodes where it is not in effect in time."""
    if world.policies is None:
        seen = "nodes of this lab enforce no policies"
        hint = "Start one with 'weft lab up --policy FILE', or with 'policies: []' in its file."
        raise ConfigError(Problem("LAB-001", world.lab.name, seen, hint=hint))
    there = world.policies.objects
    if unknown := [name for name in wanted.delete if name not in there]:
        seen, expected = "there is none of this name", one_of(there, unknown[0]) if there else ""
        raise ConfigError(Problem("LAB-002", unknown[0], seen, expected=expected))
    for name in wanted.delete:
        del there[name]
        world.history.note("configured", name, now="deleted")
    for each in wanted.put:
        there[name_of(each)] = each
        world.history.note("configured", name_of(each), now="applied")
    if late := await world.police():
        hint = f"'weft lab status{world.lab.option}' says why."
        seen = f"the policies are not in effect on {', '.join(late)} yet"
        raise Unavailable(Problem("POL-003", world.lab.name, seen, hint=hint))
