#!/usr/bin/env bash
# Builds Kubernetes' own programs for the tests, from the published Go modules: says in which folder they lie.
#
#   scripts/kubernetes.sh            builds them when they are missing: some four minutes, once
#   scripts/kubernetes.sh --built    builds nothing; ends with 3 when they are missing
#
# Each folder of tests/support/kubernetes/cmd is a program. Whatever decides how they turn out names the folder.
# It needs Go as new as go.mod says, or 1.21 where that may fetch a newer one; ends with 4 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=tests/support/kubernetes
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it

say() { printf 'kubernetes: %s\n' "$*" >&2; }

key=$(cat scripts/kubernetes.sh $source/go.mod $source/go.sum $source/cmd/*/*.go | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/kubernetes
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }

needed=$(awk '$1 == "go" { print $2 }' $source/go.mod)
found=$(cd $source && go env GOVERSION 2>/dev/null | sed s/^go//) || true
if [ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    say "the tests of tests/kube need Go $needed or newer, as go in PATH, to build Kubernetes' programs; there is ${found:-none}"
    exit 4
fi
[ "${1:-}" != --built ] || { say 'not built: run scripts/kubernetes.sh'; exit 3; }

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9 # another checkout may be building the same
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }
version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' $source/go.mod)
say "building $(cd $source/cmd && echo *) $version with Go $found: some four minutes, once"
start=$SECONDS
work=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
IFS=. read -r major minor _ <<<"${version#v}"
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
(cd $source && CGO_ENABLED=0 GOWORK=off go build -trimpath -buildvcs=false -ldflags "$flags" -o "$work/" ./cmd/...) >&2
chmod 755 "$work"
mv "$work" "$cache/$key"
say "built in $((SECONDS - start)) s, into $cache/$key ($(du -sm "$cache/$key" | cut -f1) MB)"
echo "$cache/$key"
