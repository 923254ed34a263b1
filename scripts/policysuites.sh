#!/usr/bin/env bash
# Builds the suites that others wrote to test policies, from their published Go modules: says in which folder they lie.
# It builds them when they are missing: some minutes, once.
#
# They are cyclonus with the worker of its pods, and cnp.test: the conformance suite of sigs.k8s.io/network-policy-api,
# with the CRD that it is about.
# It needs Go as scripts/kubernetes.sh does; ends with 4 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD/tests/support/kubernetes
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it

say() { printf 'policysuites: %s\n' "$*" >&2; }

key=$(cat scripts/policysuites.sh $source/{cyclonus,cnp}/{go.mod,go.sum,*.go} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/policysuites
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }

needed=$(awk '$1 == "go" { print $2 }' $source/{cyclonus,cnp}/go.mod | sort -V | tail -n 1)
found=$(cd $source/cnp && go env GOVERSION 2>/dev/null | sed s/^go//) || true
if [ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    say "needs Go $needed or newer, as go in PATH; there is ${found:-none}"
    exit 4
fi

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9 # another checkout may be building the same
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }
work=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
start=$SECONDS
export CGO_ENABLED=0 GOWORK=off
build=(-trimpath -buildvcs=false -ldflags '-s -w' -o "$work/")
say "building cyclonus and the tests of network-policy-api with Go $found: some minutes, once"
(cd $source/cyclonus && go build "${build[@]}" . github.com/mattfenwick/cyclonus/cmd/worker) >&2
cd $source/cnp
go test -vet=off -c "${build[@]}" . >&2
crds=$(go list -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/standard
install -m 644 "$crds"/policy.networking.k8s.io_clusternetworkpolicies.yaml "$work/"
chmod 755 "$work"
mv "$work" "$cache/$key"
say "built in $((SECONDS - start)) s, into $cache/$key ($(du -sm "$cache/$key" | cut -f1) MB)"
echo "$cache/$key"
