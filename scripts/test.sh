#!/usr/bin/env bash
# All tests but tests/release, which scripts/release-check.sh runs, in stages; goes on after a stage that fails. The report at the end decides: tests/run/report.py.
# Of the parametrised tests with a real kernel it does some cases, drawn by the commit (tests/run/draw.py); with `--whole`
# all of them. A test that failed with a real kernel is run once more (docs/decisions/0043-what-failed-once-more.md).
#
# There are two rows of stages, because all of them wait as much as they work.
# The first is printed as it goes:
#
#   pure      no root, no kernel; with the branch coverage of the pure half, but what is long
#   programs  Kubernetes' own, flannel's daemon and its relay, containerd 1.7 and 2, built from their modules when they
#             are missing; ten minutes, once
#   system    stores, kernel objects and the daemon; apart from the machine: scripts/apart.sh
#   campaign  kill -9 at seeded points, hostile input, broken environments; minutes, with seeds and counts printed; apart
#   runtime   containerd and podman, with our plugins and beside Debian's; a file at a time, apart as above
#
# The second runs beside it; its output goes to build/reports/beside.log, and is printed when both are over:
#
#   conformance  ten of Kubernetes' own tests of the network, where `make conformance` has built them, and
#             three of those of NetworkPolicies, on nodes that enforce them
#   lab       several real nodes, and the commands of the docs; a file at a time
#   long      searches and random histories of the pure half, of a mesh in virtual time above all; without coverage,
#             which others give and which makes them take twice as long
#   vm        what this kernel lacks, in a virtual machine with Debian's
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
reports=build/reports
rm -rf $reports
mkdir -p $reports
[ "$(id -u)" = 0 ] || { echo 'make test needs root: it makes network namespaces' >&2; exit 1; }

draw=--drawn=$(git rev-parse HEAD 2>/dev/null || date +%F)
case "$*" in
    '') ;;
    --whole) draw= ;;
    *) echo "usage: scripts/test.sh [--whole]" >&2; exit 2 ;;
esac

# stage NAME COMMAND…: run, remember how long it took and how it ended. Nothing is ended by the clock: tests/run/stage.py
stage() { $bin/python -m tests.run.stage $reports "$@"; }
apart=scripts/apart.sh
# tests FILE NAME COMMAND…: a stage of pytest. What failed is run once more; tests/run/report.py says which tests that were.
tests() {
    local file=$reports/$1 name=$2
    shift 2
    set -- "$@" $draw
    stage "$name" "$@" -q -o cache_dir="$file.cache" --junitxml="$file.xml"
    [ $? != 1 ] || stage "$name, once more" "$@" -q -n 0 --maxfail=1 --last-failed -o cache_dir="$file.cache" --junitxml="$file-again.xml"
}

second_row() {
    # Building takes some minutes, in which little else needs both processors.
    { nice scripts/kubernetes.sh; nice $bin/python -m tests.support.flanneld; nice scripts/runtimes.sh; nice $bin/python -m tests.kube.helmunit; } >/dev/null 2>&1
    stage 'conformance, ten tests' $bin/python -m tests.conformance --network vxlan4 --slice 10 --built
    stage 'conformance, three tests of policies' $bin/python -m tests.conformance --network vxlan4 --policies --slice 3 --built
    tests lab 'lab tests' $bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests/lab
    stage 'long searches' $bin/python -m pytest -q -n 2 -m 'long and not soak' --junitxml=$reports/long.xml $(grep -rl --include='*.py' mark.long tests/mesh tests/pure)
    tests vm 'virtual machine' $bin/python -m pytest tests/vm
}

# Whatever happens, the second row ends with the first, and what failed until then is told.
tell() {
    trap - EXIT
    while kill -- -$beside 2>/dev/null; do sleep 0.5; done
    cat $reports/beside.log
    [ -z "$draw" ] || printf "\nOf parametrised tests with a real kernel some cases were run: %s; 'scripts/test.sh --whole' runs all.\n" "$draw"
    $bin/python -m tests.run.report $reports
    exit $?
}
set -m # it is a process group of its own, which a signal reaches as a whole
second_row >$reports/beside.log 2>&1 </dev/null &
beside=$!
set +m
trap tell EXIT

stage lint scripts/lint.sh
stage 'pure tests' $bin/coverage run --data-file=$reports/coverage -m pytest -q -m 'not soak and not long' --junitxml=$reports/pure.xml tests/pure
stage 'coverage of the pure half' $bin/coverage report --data-file=$reports/coverage
stage "Kubernetes' programs" scripts/kubernetes.sh
stage "upstream's relay" $bin/python -m tests.support.relay.upstreamrelay
stage "upstream's daemon" $bin/python -m tests.support.flanneld
stage 'container runtimes' scripts/runtimes.sh
stage 'helm-unittest' $bin/python -m tests.kube.helmunit
tests system 'system tests' $apart $bin/python -m pytest -n 5 --dist worksteal tests/cluster tests/kube tests/kernel tests/node
tests campaign 'kills, hostile input and broken environments' $apart $bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rP tests/campaign
tests runtime 'real runtimes' $apart $bin/python -m pytest -n 2 --dist loadfile tests/runtime
wait $beside
# What tests leave in the checkout is a fault; where people work, they change it themselves meanwhile.
[ -z "${CI:-}" ] || stage 'the checkout is as it was' sh -c 'git status --short; test -z "$(git status --short)"'
