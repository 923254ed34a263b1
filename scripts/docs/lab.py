"""What the docs have of a lab: the JSON Schema of its file, and a picture of what one reports, without one."""

import json
from pathlib import Path
from typing import Any

import msgspec

from weft.lab.files import labkeys
from weft.lab.graph import drawing
from weft.lab.graph.picture import picture
from weft.lab.report import LabReport, NodeReport, PodReport
from weft.screen.documents import document

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "images" / "lab.svg"
SCHEMA = DOCS / "reference" / "lab.schema.json"


def report(
    *, nodes: int = 2, pods: int = 1, families: Any = (4,), backend: str = "vxlan", state: str = "ready", **options: Any
) -> LabReport:
    network: dict[str, Any] = {"Backend": {"Type": backend, **options}, "Network": "10.244.0.0/16"}
    if 6 in families:
        network |= {"EnableIPv6": True, "IPv6Network": "2001:cafe:42::/56"}
    own = {4: ("172.31.0.1{0}", "10.244.{0}.0/24", "10.244.{0}.{1}/24"), 6: ("fd31::1{0}", "2001:cafe:42:{0}::/64", "")}
    own[6] = (*own[6][:2], "2001:cafe:42:{0}::{1}/64")
    return LabReport(
        name="weft",
        backend=backend,
        families=list(families),
        store="http://172.31.0.1:2379",
        store_state="ready",
        network=msgspec.Raw(json.dumps(network).encode()),
        nodes=[
            NodeReport(
                name=f"node{number}",
                underlay=[own[family][0].format(number) for family in families],
                subnets=[own[family][1].format(number) for family in families],
                mtu=1450,
                daemon=state if number == 2 else "ready",
                problems=[],
                pid=1,
            )
            for number in range(1, nodes + 1)
        ],
        pods=[
            PodReport(
                name=f"pod{node}-{number}",
                node=f"node{node}",
                addresses=[own[family][2].format(node, number + 1) for family in families],
                id="x",
                netns="y",
            )
            for node in range(1, nodes + 1)
            for number in range(1, pods + 1)
        ],
    )


def drawn() -> str:
    return drawing.svg(picture(report(pods=2)))


def schema() -> str:
    return document("json", labkeys.schema())


def write() -> None:
    SCHEMA.write_text(schema())
    PICTURE.write_text(drawn())
