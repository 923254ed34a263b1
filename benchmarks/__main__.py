"""`python -m benchmarks [-o json] [NAME…]`: measure, print beside what is to be reached, exit 1 when one is missed."""

import argparse
import importlib
import sys
import time

from benchmarks.figures import Figure, as_json, table

# In this order: quick ones first, those that heat the machine last.
NAMES = (
    "start",
    "events",
    "repairs",
    "rules",
    "cold_start",
    "flanneld",
    "kube",
    "clash",
    "mesh",
    "mesh_core",
    "mesh_nodes",
    "memory",
    "pods",
    "lab_up",
    "lab_kube",
    "policies",
    "daytwo",
    "throughput",
    "relay",
    "backends",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("name", nargs="*", choices=[*NAMES, []], help="which, all without")
    chosen = parser.parse_args()
    figures: list[Figure] = []
    for name in chosen.name or NAMES:
        start = time.monotonic()
        figures += importlib.import_module(f"benchmarks.{name}").measure()
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(as_json(figures) if chosen.output == "json" else table(figures))
    missed = [figure for figure in figures if figure.verdict == "missed"]
    for figure in missed:
        print(f"missed: {figure.what}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
