#!/usr/bin/env bash
# Builds container runtimes that Debian has not, from their published Go modules: says in which folder they lie.
#
#   scripts/runtimes.sh            builds them when they are missing: some five minutes, once
#   scripts/runtimes.sh --built    builds nothing; ends with 3 when they are missing
#
# Each folder of tests/support/runtimes is a runtime, whose programs.go names its programs, and gets a folder of them;
# runc is Debian's, and so is CRI-O's conmon. It needs Go as scripts/kubernetes.sh does; ends with 4 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD/tests/support/runtimes
PATH=$PATH:/usr/local/go/bin # where Go's own archive puts it
limit=1500                   # seconds for each

say() { printf 'runtimes: %s\n' "$*" >&2; }

key=$(cat scripts/runtimes.sh $source/*/{go.mod,go.sum,programs.go} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/runtimes
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }

needed=$(awk '$1 == "go" { print $2 }' $source/*/go.mod | sort -V | tail -n 1)
found=$(cd $source/containerd-2 && go env GOVERSION 2>/dev/null | sed s/^go//) || true
if [ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    say "needs Go $needed or newer, as go in PATH; there is ${found:-none}"
    exit 4
fi
[ "${1:-}" != --built ] || { say "not built: run scripts/runtimes.sh"; exit 3; }

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9 # another checkout may be building the same
[ ! -d "$cache/$key" ] || { echo "$cache/$key"; exit; }
work=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$work"' EXIT
start=$SECONDS
for module in "$source"/*/; do
    name=$(basename "$module")
    mapfile -t programs < <(sed -n 's/.*_ "\(.*\)"/\1/p' "$module/programs.go")
    cd "$module"
    read -r version sources < <(GOWORK=off go list -f '{{.Module.Version}} {{.Module.Dir}}' "${programs[0]}")
    say "building $name $version with Go $found"
    mkdir "$work/$name"
    # The tag has CRI-O check signatures without gpgme, a library in C.
    CGO_ENABLED=0 GOWORK=off timeout $limit go build -trimpath -buildvcs=false -tags containers_image_openpgp \
        -ldflags "-s -w -X ${programs[0]%/cmd/*}/version.Version=$version" -o "$work/$name/" "${programs[@]}" >&2
    # With it CRI-O keeps a pod's namespaces; it is in C, in the same module.
    [ ! -d "$sources/pinns" ] || cc -std=c99 -Os -s -o "$work/$name/pinns" "$sources"/pinns/src/*.c
done
chmod 755 "$work"
mv "$work" "$cache/$key"
say "built in $((SECONDS - start)) s, into $cache/$key ($(du -sm "$cache/$key" | cut -f1) MB)"
echo "$cache/$key"
