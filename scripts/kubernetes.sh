#!/usr/bin/env bash
# Builds Kubernetes' own programs for tests and lab, from the published Go modules: says in which folder they lie.
#
#   scripts/kubernetes.sh                  builds them when they are missing: some five minutes, once
#   scripts/kubernetes.sh --conformance    those, and what Kubernetes' own tests of the network need: as long again
#   … --built                              builds nothing; ends with 3 when they are missing
#
# Each folder of tests/support/kubernetes/cmd is a program; beside it are helm, the tests, e2e, and the cluster's DNS, coredns.
# Whatever decides how they turn out names the folder.
# It needs Go as new as go.mod says, or 1.21 where that may fetch a newer one; ends with 4 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD/tests/support/kubernetes
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it

set=cmd
[ "${1:-}" != --conformance ] || { set=conformance; shift; }

say() { printf 'kubernetes: %s\n' "$*" >&2; }

key_of() { cat scripts/kubernetes.sh "$@" | sha256sum | cut -c1-16; }
key=$(key_of $source/go.mod $source/go.sum $source/cmd/*/*.go)
[ $set = cmd ] || key=$(key_of $source/go.mod $source/go.sum $source/{cmd/*,e2e,coredns}/*.go $source/coredns/go.{mod,sum})
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/kubernetes
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }

needed=$(awk '$1 == "go" { print $2 }' $source/go.mod)
found=$(cd $source && go env GOVERSION 2>/dev/null | sed s/^go//) || true
if [ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    say "the tests of tests/kube need Go $needed or newer, as go in PATH, to build Kubernetes' programs; there is ${found:-none}"
    exit 4
fi
[ "${1:-}" != --built ] || { say "not built: run scripts/kubernetes.sh $( [ $set = cmd ] || echo --conformance)"; exit 3; }

mkdir -p "$cache"
base=
[ $set = cmd ] || base=$(scripts/kubernetes.sh)
exec 9>"$cache/.lock"
flock 9 # another checkout may be building the same
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }
version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' $source/go.mod)
start=$SECONDS
work=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
IFS=. read -r major minor _ <<<"${version#v}"
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
go_in() { (cd "$source/$1" && CGO_ENABLED=0 GOWORK=off go "$2" -trimpath -buildvcs=false -ldflags "$flags" "${@:3}") >&2; }
if [ $set = cmd ]; then
    say "building $(cd $source/cmd && echo *) $version and helm with Go $found: some five minutes, once"
    go_in . build -o "$work/" ./cmd/... helm.sh/helm/v3/cmd/helm
else
    say "building Kubernetes' network tests $version, CoreDNS and agnhost with Go $found: some five minutes, once"
    cp -l "$base"/* "$work/"
    images=k8s.io/kubernetes/test/images
    go_in . build -o "$work/" github.com/onsi/ginkgo/v2/ginkgo $images/agnhost $images/regression-issue-74839
    # agnhost serves HTTPS with these.
    porter=$(cd $source && GOWORK=off go list -f '{{.Dir}}' $images/agnhost)/porter
    install -m 644 "$porter"/localhost.{crt,key} "$work/"
    go_in coredns build -o "$work/" .
    go_in . test -vet=off -c -o "$work/e2e.test" ./e2e
fi
chmod 755 "$work"
mv "$work" "$cache/$key"
say "built in $((SECONDS - start)) s, into $cache/$key ($(du -sm "$cache/$key" | cut -f1) MB)"
echo "$cache/$key"
