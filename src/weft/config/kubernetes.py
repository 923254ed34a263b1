"""A daemon's variables in Kubernetes, and the prefix of its annotations (flannel.md §1.4, §5.3)."""

import re
from collections.abc import Mapping
from typing import Final

from weft.model.errors import Problem
from weft.model.value import Value, field

# Not anchored at its start, as upstream's: the API server takes names in capitals, too.
_PREFIX: Final = re.compile(r"(?:[a-z0-9_-]+\.)+[a-z0-9_-]+/(?:[a-z0-9_-]+-)?\Z")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


class Surroundings(Value):
    """What the variables say; an empty text means "not given".

    `node` is this node's name; without it the pod `pod` in `namespace` tells. `host` and `port` are the API server's.
    `environ` are all variables, for programs that give credentials; never logged.
    """

    node: str = ""
    namespace: str = ""
    pod: str = ""
    host: str = ""
    port: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


def surroundings(environ: Mapping[str, str], problems: list[Problem], warnings: list[str]) -> Surroundings:
    """Read the variables; what is wrong becomes problems."""
    found = Surroundings(
        node=environ.get("NODE_NAME", ""),
        namespace=environ.get("POD_NAMESPACE", ""),
        pod=environ.get("POD_NAME", ""),
        host=environ.get("KUBERNETES_SERVICE_HOST", ""),
        port=environ.get("KUBERNETES_SERVICE_PORT", ""),
        environ=environ,
    )
    if not found.node and not (found.namespace and found.pod):
        given = [name for name in ("POD_NAME", "POD_NAMESPACE") if environ.get(name)]
        seen = f"not set, and of POD_NAME and POD_NAMESPACE {'only ' + given[0] if given else 'none'}"
        hint = "The manifest sets it from spec.nodeName; outside of a pod, set it to the name in `kubectl get nodes`"
        expected = "the name of this node"
        problems.append(Problem(code="FLAG-001", where="NODE_NAME", seen=seen, expected=expected, hint=hint))
    depth = environ.get("EVENT_QUEUE_DEPTH", "")
    if depth and not _NUMBER.match(depth):
        seen = f"{depth!r:.60}"
        problems.append(Problem(code="FLAG-001", where="EVENT_QUEUE_DEPTH", seen=seen, expected="a whole number"))
    warnings += [
        f"{name} does nothing: {why}"
        for name, why in (
            ("EVENT_QUEUE_DEPTH", "there is no queue of events, but one newest state for each node"),
            ("CONT_WHEN_CACHE_NOT_READY", "weft always starts with what it knows, and waits for the rest"),
        )
        if environ.get(name)
    ]
    return found


def annotation_prefix(text: str) -> str:
    """`ValueError` says what was expected."""
    if text.count("/") > 1:
        raise ValueError("a prefix with one slash at most")
    prefix = text if "/" in text else f"{text}/"
    if not prefix.endswith(("/", "-")):
        prefix += "-"
    if not _PREFIX.search(prefix):
        raise ValueError("a domain with a dot, as in example.com or example.com/name, of a-z, 0-9, _ and -")
    return prefix
