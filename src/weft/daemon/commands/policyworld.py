"""What `weft policy` judges by: objects in files, or those of a cluster, read from its API."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config.kubernetes import Surroundings
from weft.desired.policy.preview import applied, world_of
from weft.desired.policy.question import Question
from weft.desired.policy.verdict import World
from weft.model.errors import ConfigError, Problem
from weft.model.node.nodestate import PoliciesTold
from weft.model.value import replace
from weft.screen.documents import complain_beside
from weft.wire.policyobjects import ENDINGS, read_objects

if TYPE_CHECKING:
    from weft.cluster.kube.access import Access


def read_world(
    files: Sequence[Path],
    kubeconfig: Path | None,
    environ: Mapping[str, str],
    output: str,
    *,
    told: PoliciesTold | None,
    asked: Question | None = None,
    more: Sequence[Path] = (),
) -> World:
    """The objects in `files`; without any, those that this node's weftd has `told` that it reads from files.

    Else those of the API: all, or what the question `asked` needs.

    Objects in the files `more` are added, or replace those of the same name. What cannot be enforced as written is said
    on standard error.
    """
    if files and kubeconfig is not None:
        seen, expected = "--from and --kubeconfig", "one of them"
        raise ConfigError(Problem("FLAG-001", "weft policy", seen, expected=expected))
    if told is not None and told.files and kubeconfig is None:
        files = [Path(told.files)]
    if not files:
        return with_files(_of_cluster(kubeconfig, environ, asked, output), more, output)
    found = read_objects(texts(files))
    complain_beside(output, found.problems)
    return with_files(replace(world_of(found.things), services=found.services), more, output)


def with_files(world: World, files: Sequence[Path], output: str) -> World:
    """The world once the files are applied. A namespace that they only name stays as it was."""
    over = read_objects(texts(files))
    complain_beside(output, over.problems)
    return applied(world, over.things, over.assumed)


def texts(paths: Sequence[Path]) -> dict[str, str]:
    """The files' contents by path; of a directory, those of its YAML and JSON files. Raises `ConfigError`."""
    files = [
        file
        for path in paths
        for file in (sorted(each for each in path.iterdir() if each.suffix in ENDINGS) if path.is_dir() else [path])
    ]
    try:
        return {str(file): file.read_text() for file in files}
    except UnicodeDecodeError as error:
        raise ConfigError(Problem("POL-005", "a file", str(error), expected="text in UTF-8")) from error


def _of_cluster(kubeconfig: Path | None, environ: Mapping[str, str], asked: Question | None, output: str) -> World:
    from weft.cluster.kube.clusterreader import read_once

    world, problems = asyncio.run(read_once(_access(kubeconfig, environ), asked))
    complain_beside(output, problems)
    return world


def _access(kubeconfig: Path | None, environ: Mapping[str, str]) -> "Access":
    """As kubectl finds it, except that several files in KUBECONFIG are not merged."""
    from weft.cluster.kube.kubeconfig import find

    around = Surroundings(
        host=environ.get("KUBERNETES_SERVICE_HOST", ""),
        port=environ.get("KUBERNETES_SERVICE_PORT", ""),
        environ=environ,
    )
    usual = Path(environ.get("HOME") or "/", ".kube", "config")
    file = str(kubeconfig or "") or environ.get("KUBECONFIG", "")
    if not file and not around.host:
        if not usual.exists():
            hint = "Give --kubeconfig=FILE, or --from FILES of what `kubectl get -o yaml` wrote"
            raise ConfigError(Problem("FLAG-001", "weft policy", f"no KUBECONFIG, and no {usual}", hint=hint))
        file = str(usual)
    return find("", file, around=around)
