"""What each command prints as JSON: a type of its own, or an object that it makes.

`{"key": str}` is an object with that key, `[str]` a list, `(a, b)` one of them.
"""

from typing import Any, Final

import msgspec

from weft.daemon.commands.peers import Row
from weft.daemon.commands.policy import Checked
from weft.desired.policy.preview import Preview
from weft.desired.policy.refusals import PodsHere, Refused
from weft.desired.policy.verdict import ServiceVerdict, Verdict
from weft.diag.check.report import CheckReport
from weft.diag.doctor.explain import Section
from weft.diag.doctor.forms import DoctorReport
from weft.diag.drops.command import Report as DropsReport
from weft.diag.drops.loss import Loss
from weft.diag.trace.hops import Ways
from weft.diag.trace.probe_report import TraceReport
from weft.lab.commands.packets.recording import PacketLine
from weft.lab.commands.policy import Listed
from weft.lab.commands.using.loglines import Line
from weft.lab.graph.picture import Picture
from weft.lab.quiz import Score
from weft.lab.report import (
    LabReport,
    LinksReport,
    PingReport,
    PodReport,
    RefusedReport,
    ServiceReport,
    ThroughputReport,
    TrafficReport,
    TurnReport,
)
from weft.model.errors import Problem
from weft.model.node.history import Event
from weft.model.node.meshstate import MeshDone, MeshOwners, MeshPeer, MeshState
from weft.model.node.nodestate import NodeState, Plan

_MESH_VERBS: Final = ("create", "connect", "forget", "leave", "rmpeer", "adopt")
_ATTACHMENT: Final = {"netns": str, "ifname": str}
_FREED: Final = {"network": str, "container": str, "interface": str, "addresses": [str], "proof": str}
_RAN: Final = {"status": int, "stdout": str, "stderr": str}
_LESSON: Final = {
    "lesson": str,
    "question": str,
    "why": str,
    "typed": [{"node": str, "command": str, "look": str}],
    "task": str,
}
_JUDGED: Final = {"lesson": str, "right": bool, "demands": [{"what": str, "problem": str}]}
_SYMPTOMS: Final = {"level": str, "seed": int, "symptoms": [str], "worth": int, "score": Score}
_REVEALED: Final = {
    "right": bool,
    "code": str,
    "node": str,
    "fault": str,
    "about": str,
    "mended": bool,
    "score": Score,
}
_FAULT: Final = {"name": str, "code": str, "about": str, "ends": str}

SHAPES: Final[dict[str, Any]] = {
    "weft status": NodeState,
    "weft peers": list[Row],
    "weft events": list[Event],
    "weft monitor": Event,
    "weft explain": (Section, [Section]),
    "weft doctor": DoctorReport,
    "weft check": CheckReport,
    "weft trace": (Ways, TraceReport),
    "weft drops": (DropsReport, Loss),
    "weft bundle": {"file": str, "bytes": int, "files": [str], "unseen": dict[str, str]},
    "weft policy explain": (Verdict, ServiceVerdict),
    "weft policy check": Checked,
    "weft policy denied": Refused,
    "weft policy list": PodsHere,
    "weft policy preview": Preview,
    "weft mesh status": MeshState,
    "weft mesh peers": list[MeshPeer],
    "weft mesh ways": list[MeshPeer],
    "weft mesh ring": MeshOwners,
    **dict.fromkeys((f"weft mesh {verb}" for verb in _MESH_VERBS), MeshDone),
    "weft plan": Plan,
    "weft cleanup": {
        "dry_run": bool,
        "found": [str],
        "left": [str],
        "foreign": [str],
        "files": dict[str, str],
        "problems": [Problem],
    },
    "weft version": {"version": str},
    "weft cni add": "the plugins' result, as CNI has it",
    "weft cni check": {"asked": bool, **_ATTACHMENT},
    "weft cni del": {"deleted": _ATTACHMENT},
    "weft cni gc": {"asked": bool, "attachments": [{"state": str, "container": str, **_ATTACHMENT}]},
    "weft cni status": {"asked": bool, "ready": bool | None},
    "weft cni version": {
        "cniVersion": str,
        "plugins": [{"type": str, "path": str, "supportedVersions": [str]}],
    },
    "weft cni install": (
        {
            "bin_dir": str,
            "plugins": [str],
            "interpreter": str | None,
            "replaced": [str],
            "conflist": {"path": str, "done": str},
            "comes_first": str | None,
        },
        {
            "plugins": [
                {**dict.fromkeys(("network", "file", "plugin", "path", "version"), str), "speaks": [str]},
            ],
            "problems": [Problem],
            "comes_first": str | None,
        },
    ),
    "weft cni uninstall": {"done": dict[str, str]},
    "weft cni handback": {
        "networks": dict[str, str],
        "programs": dict[str, str],
        "still_weft": [str],
        "port_maps": [dict[str, str]],
    },
    "weft ipam list": {
        "reservations": [
            dict.fromkeys(("network", "directory", "address", "container", "interface", "state", "proof"), str)
        ]
    },
    "weft ipam gc": {"dry_run": bool, "freed": [_FREED], "failed": [{**_FREED, "error": str}], "unknown": int},
    "weft lab up": LabReport,
    "weft lab ps": LabReport,
    "weft lab status": dict[str, NodeState | None],
    "weft lab monitor": {"node": str, **{field.name: field.type for field in msgspec.structs.fields(Event)}},
    "weft lab top": TrafficReport,
    "weft lab down": {"down": str},
    "weft lab list": [{"name": str, "state": str, "pid": int}],
    "weft lab clean": {"removed": [str]},
    "weft lab run": PodReport,
    "weft lab rm": {"removed": str},
    "weft lab exec": (_RAN, [{"node": str, **_RAN}]),
    "weft lab cp": {"files": int, "bytes": int},
    "weft lab ping": PingReport,
    "weft lab pingall": PingReport,
    "weft lab iperf": ThroughputReport,
    "weft lab scale": LabReport,
    "weft lab config set": LabReport,
    "weft lab logs": list[Line],
    "weft lab capture": (PacketLine, {"file": str, "packets": int, "dropped": dict[str, int]}),
    "weft lab trace": TraceReport,
    "weft lab check": CheckReport,
    "weft lab graph": Picture,
    "weft lab break": ({"node": str, "fault": str, "broken": bool}, {"faults": [_FAULT]}),
    "weft lab link": LinksReport,
    "weft lab partition": LinksReport,
    "weft lab heal": LinksReport,
    "weft lab expose": ServiceReport,
    "weft lab services": list[ServiceReport],
    "weft lab unexpose": {"unexposed": str},
    "weft lab policy apply": {"applied": [str]},
    "weft lab policy delete": {"deleted": [str]},
    "weft lab policy list": list[Listed],
    "weft lab policy preview": Preview,
    "weft lab policy explain": (Verdict, ServiceVerdict),
    "weft lab policy denied": list[RefusedReport],
    **{f"weft lab {verb}": TurnReport for verb in ("start", "stop", "restart", "kill")},
    "weft lab quiz start": _SYMPTOMS,
    "weft lab quiz check": (_REVEALED, {"right": bool, "judgement": str}),
    "weft lab quiz hint": {"hint": str, "number": int, "of": int},
    "weft lab quiz give-up": _REVEALED,
    "weft lab tutorial start": _LESSON,
    "weft lab tutorial show": _LESSON,
    "weft lab tutorial check": _JUDGED,
    "weft lab tutorial next": (_LESSON, _JUDGED, {"done": bool}),
    "weft lab tutorial hint": {"lesson": str, "hint": str, "number": int, "of": int},
    "weft lab tutorial reset": {"reset": str},
}
