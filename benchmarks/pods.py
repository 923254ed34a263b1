"""ADD and DEL of flannel's conflist, with weft's plugins and with Debian's `bridge`, `host-local` and `portmap`."""

import json
import sys

from benchmarks.figures import Figure
from benchmarks.lab import ROOT, inside, lab

# The sets of samples, how they are called, what ADD and DEL are to reach in ms, and what upstream takes for them.
CASES = (
    ("plain", "no ports", 6, ("16.2 ms", "27.3 ms")),
    ("port", "one hostPort", 7, ("37 ms", "94 ms")),
    ("crowd", "one hostPort, 200 attached", 7, ("51 ms", "104 ms")),
    ("plain_at_once", "no ports, 50 at once", 250, ("631 ms", "")),
    ("at_once", "one hostPort, 50 at once", 250, ("1,223 ms", "2,739 ms")),
)


def measure() -> list[Figure]:
    with lab("--nodes", "1", "--pods", "0"):
        run = f"cd {ROOT} && exec {sys.executable} -m benchmarks.attach"
        said = json.loads(inside("node1", "sh", "-c", run))
    ours, theirs = said["weft"], said["debian"]
    peer = {"unit": "ms", "peer": "Debian's"}
    figures = [
        Figure(
            what=f"{verb.upper()}, {what}",
            ours=ours[case][verb],
            theirs=theirs[case][verb],
            floor=ours[case][f"{verb}_floor"],
            target=target,
            upstream=upstream[place],
            **peer,
        )
        for case, what, target, upstream in CASES
        for place, verb in enumerate(("add", "del"))
    ]
    figures += [
        Figure(
            what=f"DEL, {what}, until its link is gone",
            ours=ours[case]["gone"],
            theirs=theirs[case]["gone"],
            **peer,
        )
        for case, what, _, _ in CASES[:2]
    ]
    return [
        *figures,
        Figure(
            what="DEL until links and addresses are free, 50 at once",
            ours=ours["at_once"]["gone"],
            theirs=theirs["at_once"]["gone"],
            target=300,
            **peer,
        ),
        Figure(
            what="processes and threads started by an ADD",
            unit="",
            ours=ours["started"],
            theirs=theirs["started"],
            target=2,
            peer="Debian's",
            upstream="about 31",
        ),
        *(
            Figure(
                what=f"{verb.upper()}, one hostPort, without a daemon",
                ours=said["alone"][verb],
                theirs=theirs["port"][verb],
                target=180,
                upstream=CASES[1][3][place],
                **peer,
            )
            for place, verb in enumerate(("add", "del"))
        ),
        *(
            Figure(
                what=f"{verb.upper()}, one hostPort, 30 at once, without a daemon",
                ours=said["few"]["weft"][verb],
                theirs=said["few"]["debian"][verb],
                ratio=1.2,
                **peer,
            )
            for verb in ("add", "del")
        ),
        Figure(
            what="DEL, one hostPort, without a daemon, until its link is gone", unit="ms", ours=said["alone"]["gone"]
        ),
        Figure(
            what="the last of 1,000 ADDs on a node",
            unit="ms",
            ours=said["many"]["last"],
            theirs=said["many"]["first"],
            floor=said["many"]["floor"],
            ratio=1.2,
            peer="the first",
        ),
    ]
