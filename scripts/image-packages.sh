#!/usr/bin/env bash
# Prints the folder with the Debian packages of weft's image, fetched once below ~/.cache/weft: scripts/image-packages.sh [--lock]
#
# requirements/image.txt names each by its version and by its sum for each architecture: they are the image's base, and no
# other bytes get in. `--lock` writes the newest versions and their sums into it. A file NAME-ARCHITECTURE.deb each.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'image-packages: %s\n' "$*" >&2; exit 1; }
lock=requirements/image.txt
suite=bookworm
place=${XDG_CACHE_HOME:-$HOME/.cache}/weft/image-$(sha256sum $lock | cut -c1-16)
[ "${1:-}" = --lock ] || [ ! -d "$place" ] || { echo "$place"; exit; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,archives}/partial "$work/kept"
mirror='deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org'
printf '%s\n' "$mirror/debian $suite main" "$mirror/debian-security $suite-security main" >"$work/sources.list"
apt() { # of both architectures, whatever this machine's is, and without a word to its dpkg
    (cd "$work/archives" && "apt-$1" -qq -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User="$(id -un)" -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" \
        -o Dir::Etc::sourceparts=- -o Dir::Etc::sourcelist="$work/sources.list" "${@:2}")
}
apt get update >&2

if [ "${1:-}" = --lock ]; then
    mapfile -t names < <(sed -n 's/^\([a-z][^ ]*\).*/\1/p' $lock)
    # What is for all architectures has none in its name, so that apt finds nothing for arm64.
    apt cache show --no-all-versions "${names[@]}" "${names[@]/%/:arm64}" >"$work/found" 2>"$work/missing" || true
    sed -n '/^#/p' $lock >"$work/new"
    awk '
        /^Package: / { name = $2 }
        /^Version: / { version = $2 }
        /^Architecture: / { architecture = $2 }
        /^SHA256: / { if (architecture != "arm64") { amd64[name] = $2 } else { arm64[name] = $2 }; all[name] = architecture == "all"
            if (versions[name] && versions[name] != version) { print name ": two versions" >"/dev/stderr"; exit 1 }
            versions[name] = version }
        END { for (name in versions) print name, versions[name], amd64[name], all[name] ? amd64[name] : arm64[name] }
    ' "$work/found" | LC_ALL=C sort >>"$work/new"
    [ "$(grep -c '^[^#]*\( [0-9a-f]\{64\}\)\{2\}$' "$work/new")" = ${#names[@]} ] || fail "not every name is a package: $(cat "$work/missing")"
    cat "$work/new" >$lock
    exit
fi

wanted=()
while read -r name version amd64 arm64; do
    wanted+=("$name=$version") # amd64, or for all architectures
    [ "$amd64" = "$arm64" ] || wanted+=("$name:arm64=$version")
done < <(grep -v '^#' $lock)
apt get download "${wanted[@]}" >&2 || fail "where the mirror has other versions now, scripts/image-packages.sh --lock takes those"
declare -A found
while read -r sum file; do found[$sum]=$file; done < <(sha256sum "$work"/archives/*.deb)
while read -r name _ amd64 arm64; do
    for architecture in amd64 arm64; do
        sum=${!architecture}
        [ -n "${found[$sum]:-}" ] || fail "$name for $architecture is not what $lock names"
        cp "${found[$sum]}" "$work/kept/$name-$architecture.deb"
    done
done < <(grep -v '^#' $lock)
chmod 755 "$work/kept"
mkdir -p "${place%/*}"
mv -T "$work/kept" "$place"
echo "$place"
