"""Run suites that others wrote to test policies, on a lab whose nodes enforce them, and say what passed.

python -m tests.conformance.policies cyclonus               NetworkPolicies that cyclonus generates, TCP and UDP
python -m tests.conformance.policies cyclonus --slice 10    ten of them, drawn by WEFT_SEED
python -m tests.conformance.policies cnp                    ClusterNetworkPolicies, by network-policy-api's own tests

The second leaves the report of sigs.k8s.io/network-policy-api in build/conformance/cnp.yaml.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance import images
from tests.conformance.cluster import NETWORKS, Cluster, cluster, said
from tests.support.checkout import CHECKOUT
from weft import __version__

_REPORTS: Final = CHECKOUT / "build" / "conformance"
# Tests that probe with SCTP: four of it alone, six beside TCP and UDP.
_SCTP: Final = "SCTP|InlineCIDRPeers|TierGress|PortRange"
_CRD: Final = "policy.networking.k8s.io_clusternetworkpolicies.yaml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=("cyclonus", "cnp"))
    parser.add_argument("--network", choices=NETWORKS, default="vxlan4")
    parser.add_argument("--slice", type=int, default=0, help="so many of cyclonus' cases alone, drawn by WEFT_SEED")
    chosen = parser.parse_args()
    programs = Path(said([CHECKOUT / "scripts" / "kubernetes.sh", "--conformance"]).strip())
    suites = Path(said([CHECKOUT / "scripts" / "policysuites.sh"]).strip())
    _REPORTS.mkdir(parents=True, exist_ok=True)
    cyclonus = chosen.suite == "cyclonus"
    write = partial(images.of_cyclonus, suites=suites) if cyclonus else images.of_cnp
    kinds = () if cyclonus else (suites / _CRD,)
    with cluster(chosen.network, programs, partial(write, programs=programs), policies=True, kinds=kinds) as made:
        start = time.monotonic()
        passed, failed = _cyclonus(made, suites, chosen.slice) if cyclonus else _cnp(made, suites)
        seconds = time.monotonic() - start
    for name in failed:
        print(f"  FAILED {name}")
    print(f"{chosen.suite}, {chosen.network}: {passed} of {passed + len(failed)} passed in {seconds:.0f} s", flush=True)
    return 1 if failed or not passed else 0


def _cyclonus(made: Cluster, suites: Path, count: int) -> tuple[int, list[str]]:
    """Return how many cases passed, and those that did not."""
    seed = int(os.environ.get("WEFT_SEED", "0")) or random.randrange(1 << 31)
    if count:
        print(f"{count} cases, WEFT_SEED={seed}", flush=True)
    output = _REPORTS / "cyclonus.json"
    command = [suites / "cyclonus", f"--slice={count}", f"--seed={seed}"]
    ended = _run(command, output, {"KUBECONFIG": str(made.config)})
    results: list[dict[str, Any]] = json.loads(output.read_text())
    failed = [f"{result['Name']} {result['Error']}".strip() for result in results if not result["Passed"]]
    passed = len(results) - len(failed)
    return passed, failed + (["cyclonus itself, before it had probed all"] if ended else [])


def _cnp(made: Cluster, suites: Path) -> tuple[int, list[str]]:
    """Return how many tests of standard features passed, and those that did not. What was left out is in the report."""
    output = _REPORTS / "cnp.yaml"
    command = [suites / "cnp.test", "-test.v", "-test.timeout=60m", f"-config={made.config}", f"-version={__version__}"]
    _run([*command, *(() if images.has_sctp() else (f"-skip={_SCTP}",))], output, {})
    [profile] = yaml.safe_load(output.read_text())["profiles"]
    standard = profile["standard"]
    return standard["statistics"]["Passed"], standard.get("failedTests", [])


def _run(command: list[Any], output: Path, environ: dict[str, str]) -> int:
    """Run a suite, and return how it ended. Its results go to `output`, what it says to a log beside.

    `FileNotFoundError` if it left no results: those of an earlier run are removed.
    """
    output.unlink(missing_ok=True)
    with output.with_suffix(".log").open("w") as log:
        ended = subprocess.run(
            [*command, f"--output={output}"],
            env=os.environ | environ,
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if not output.exists():
        raise FileNotFoundError(f"{command[0]} ended with {ended.returncode} before it wrote {output}: see {log.name}")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
