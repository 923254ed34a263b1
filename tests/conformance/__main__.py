r"""Run Kubernetes' sig-network tests on labs, and say what passed: those of its conformance, or of NetworkPolicies.

python -m tests.conformance                     IPv4 with vxlan and with host-gw
python -m tests.conformance --network vxlan4 --focus 'Services should serve'
python -m tests.conformance --network vxlan4 --slice 10 --built
python -m tests.conformance --network vxlan4 --kill-every 10
python -m tests.conformance --policies          those of NetworkPolicies, on nodes that enforce them
python -m tests.conformance --policies --focus '\[sig-network\].*\[Conformance\]'

Other projects' suites of policies: tests/conformance/policies.py.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.conformance import images
from tests.conformance.cluster import NETWORKS, Cluster, cluster, said
from tests.support.checkout import CHECKOUT
from tests.support.kubernetes.kubenodes import nodes_of

REPORTS: Final = CHECKOUT / "build" / "conformance"
# Where the kernel has no SCTP, its one test waits five minutes for a pod.
_SKIP: Final = r"\[Serial\]|\[Disruptive\]|\[Slow\]|SCTPConnectivity"
_CONFORMANCE: Final = r"\[sig-network\].*\[Conformance\]"
_POLICIES: Final = r"\[sig-network\] Netpol"
_DUAL: Final = r"\[sig-network\].*\[Feature:IPv6DualStack\]"
_LONGEST: Final = 3600  # seconds; tests of policies took 900 on a busy machine, and were not over
_REGISTRIES: Final = "repositories.yaml"
_NOT_BUILT: Final = 3  # scripts/kubernetes.sh
_NO_GO: Final = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=NETWORKS, help="one of the networks; several times")
    parser.add_argument("--focus", default="", help="a regular expression: only tests whose names it finds")
    parser.add_argument("--slice", type=int, default=0, help="so many of them alone, drawn by WEFT_SEED")
    parser.add_argument("--built", action="store_true", help="do nothing where the programs are not built yet")
    parser.add_argument("--procs", type=int, default=5, help="how many tests run at once")
    parser.add_argument(
        "--kill-every", type=float, default=0, metavar="SECONDS", help="kill the daemon of a node so often meanwhile"
    )
    parser.add_argument("--policies", action="store_true", help="have nodes enforce policies, and run their tests")
    chosen = parser.parse_args()
    script = [CHECKOUT / "scripts" / "kubernetes.sh", "--conformance"]
    missing = chosen.built and subprocess.run([*script, "--built"], stdout=subprocess.DEVNULL, check=False).returncode
    if missing:
        print("not run: 'make conformance' builds what Kubernetes' own tests need, and runs all of them")
        return 0 if missing in (_NOT_BUILT, _NO_GO) else missing
    programs = Path(said(script).strip())
    bad = 0
    for network in chosen.network or ["vxlan4", "hostgw4"]:
        usual = _POLICIES if chosen.policies else _DUAL if network == "vxlan46" else _CONFORMANCE
        focus = chosen.focus or usual
        if chosen.slice:
            focus = _slice(programs, focus, chosen.slice)
        bad += _on(network, programs, focus, chosen)
    return 1 if bad else 0


def _slice(programs: Path, focus: str, count: int) -> str:
    """Return an expression that finds some of the tests that `focus` finds."""
    seed = int(os.environ.get("WEFT_SEED", "0")) or random.randrange(1 << 31)
    lines = said([programs / "e2e.test", "--list-tests"]).splitlines()
    names = [line.partition(": ")[2] for line in lines if re.search(focus, line) and not re.search(_SKIP, line)]
    print(f"{count} of {len(names)} tests, WEFT_SEED={seed}", flush=True)
    return "|".join(re.escape(name) for name in random.Random(seed).sample(names, count))


def _on(network: str, programs: Path, focus: str, chosen: argparse.Namespace) -> int:
    """Run the tests on one network; returns how many did not pass."""
    reports = REPORTS / network
    reports.mkdir(parents=True, exist_ok=True)
    with cluster(network, programs, partial(_images, programs), policies=chosen.policies) as made:
        start = time.monotonic()
        with _kills(made.lab, chosen.kill_every):
            _ginkgo(made, programs, reports, [f"--focus={focus}", f"--procs={chosen.procs}"])
        seconds = time.monotonic() - start
    return _tell(network, json.loads((reports / "report.json").read_text()), seconds)


@contextmanager
def _kills(lab: str, every: float) -> Iterator[None]:
    """Kill a node's daemon so often while the block runs: its process, or its container with all that is in it."""
    if not every:
        yield
        return
    over, count = threading.Event(), 0
    with nodes_of(lab) as nodes:

        def run() -> None:
            nonlocal count
            chance = random.Random(int(os.environ.get("WEFT_SEED", "0")))
            while not over.wait(every):
                node = chance.choice(list(nodes.inits))
                count += bool(nodes.kill_daemon(node, container=chance.random() < 1 / 3))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            print(f"{lab}: daemons were killed {count} times", flush=True)


def _images(programs: Path, folder: Path) -> list[Path]:
    (folder / _REGISTRIES).write_text(json.dumps(images.REPOSITORIES))
    names = said([programs / "e2e.test", "--list-images"], _registries(folder)).split()
    return images.of_kubernetes(folder, programs, names)


def _registries(folder: Path) -> dict[str, str]:
    """Tell the tests where their images are."""
    return {"KUBE_TEST_REPO_LIST": str(folder / _REGISTRIES)}


def _ginkgo(made: Cluster, programs: Path, reports: Path, wanted: Sequence[str]) -> None:
    environ = os.environ | _registries(made.folder)
    (reports / "report.json").unlink(missing_ok=True)  # an earlier run's
    with (reports / "log").open("w") as log:
        subprocess.run(
            [
                *(programs / "ginkgo", f"--timeout={_LONGEST}s", "--no-color"),
                *(*wanted, f"--skip={_SKIP}"),
                *(f"--json-report={reports / 'report.json'}", f"--junit-report={reports / 'junit.xml'}"),
                *(programs / "e2e.test", "--", f"--kubeconfig={made.config}", f"--kubectl-path={programs / 'kubectl'}"),
                *("--provider=skeleton", "--num-nodes=3", "--disable-log-dump", "--dump-logs-on-failure=false"),
            ],
            env=environ,
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=made.folder,
        )


def _tell(network: str, report: list[dict[str, Any]], seconds: float) -> int:
    """Print what passed and what failed; returns how many failed."""
    specs = [spec for suite in report for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"]
    ran = [spec for spec in specs if spec["State"] not in ("skipped", "pending")]
    failed = [spec for spec in ran if spec["State"] != "passed"]
    broken = [spec for suite in report for spec in suite["SpecReports"] if spec["State"] in ("failed", "panicked")]
    for spec in {id(spec): spec for spec in [*failed, *broken]}.values():
        print(f"  FAILED {' '.join([*(spec['ContainerHierarchyTexts'] or ()), spec['LeafNodeText']])}")
        print(f"         {spec.get('Failure', {}).get('Message', '').strip().splitlines()[0][:300]}")
    print(f"{network}: {len(ran) - len(failed)} of {len(ran)} passed in {seconds:.0f} s", flush=True)
    return len(failed) + (not ran)


if __name__ == "__main__":
    sys.exit(main())
