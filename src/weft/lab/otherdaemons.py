"""Programs that serve nodes of a lab in the place of this weft's own daemon: flanneld, or another weft."""

import shutil
from pathlib import Path

from weft.lab import spec
from weft.model.errors import ConfigError, Problem
from weft.model.value import replace


def located(lab: spec.Lab, path: str) -> spec.Lab:
    """Return the lab with the whole paths of these programs, looked for in `path`. `ConfigError` names what is none."""
    found = {each.daemon: shutil.which(each.daemon, path=path) for each in lab.nodes if each.daemon}
    problems = [
        Problem(
            code="LAB-001",
            where=f"{each.name}: daemon",
            seen=f"{each.daemon} is no program that can be run",
            expected="a path, or a name on PATH",
        )
        for each in lab.nodes
        if each.daemon and found[each.daemon] is None
    ]
    if problems:
        raise ConfigError(*problems)
    whole = {program: str(Path(place).absolute()) for program, place in found.items() if place}
    return replace(lab, nodes=tuple(replace(each, daemon=whole.get(each.daemon, "")) for each in lab.nodes))
