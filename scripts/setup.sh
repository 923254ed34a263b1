#!/usr/bin/env bash
# Sets up everything that weft's demo and tests need: Debian packages, uv, the locked environment in .venv and
# the CNI client. Does nothing, and needs no network, when all of it is there already.
#
#   scripts/setup.sh                what scripts/apt-packages.txt lists
#   scripts/setup.sh conformance    what scripts/apt-conformance.txt lists, too
#   scripts/setup.sh release        what scripts/apt-release.txt lists, the cross compiler's C library, the
#                                   image's base, and .venv-release
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- Debian packages

more=
[ $# = 0 ] || more=scripts/apt-$1.txt
[ -z "$more" ] || [ -e "$more" ] || fail "$1: there is no list $more of packages"

missing_packages() {
    local name
    while read -r name; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true) in
            installed) ;;
            *) echo "$name" ;;
        esac
    done < <(cat scripts/apt-packages.txt ${more:+"$more"} | grep -v '^#')
}

install_packages() {
    local missing package policy=/usr/sbin/policy-rc.d own_policy=
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "needs these programs of Debian's packages: ${missing[*]}"
    [ "$(id -u)" = 0 ] || fail "needs Debian packages. As root: apt-get install ${missing[*]}"
    say "installing Debian packages: ${missing[*]}"
    # No service may start by itself: weft's tests and lab run their own.
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        own_policy=1
    fi
    local result=0
    {
        # Nothing of the user's goes for it, such as another vendor's containerd.
        apt-get update -q && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends --no-remove "${missing[@]}"
    } >build/setup-apt.log 2>&1 || result=$?
    [ -z "$own_policy" ] || rm -f $policy
    [ $result = 0 ] || { tail -n 20 build/setup-apt.log >&2; fail "apt-get failed; all it said: build/setup-apt.log"; }
    command -v systemctl >/dev/null || return 0
    for package in etcd-server containerd podman prometheus strongswan-starter; do # nor at the next boot
        printf '%s\n' "${missing[@]}" | grep -qx $package || continue
        dpkg -L $package | sed -n 's|^.*/systemd/system/||p' | xargs -r systemctl disable --quiet 2>/dev/null || true
    done
}

# --- Python

find_python() {
    local candidate
    for candidate in /usr/bin/python3 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "needs Python 3.11, 3.12 or 3.13 as python3"
}

# The stamp of a step is the hash of all that decides its outcome.
stamp() { cat "$@" | sha256sum | cut -d' ' -f1; }
done_before() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }

install_uv() {
    local want
    want=$(stamp requirements/tools.txt)
    done_before .venv-tools/stamp "$want" && return
    say "installing uv ($(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements/tools.txt)) into .venv-tools"
    rm -rf .venv-tools
    "$python" -m venv .venv-tools
    .venv-tools/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/tools.txt
    echo "$want" >.venv-tools/stamp
}

install_environment() {
    local want uv=.venv-tools/bin/uv
    want=$(stamp requirements/dev.txt <("$python" -VV))
    if ! done_before .venv/stamp-packages "$want"; then
        say "installing $(grep -c '^[a-z].*==' requirements/dev.txt) locked packages into .venv ($("$python" -V))"
        [ -x .venv/bin/python ] || $uv venv -q --python "$python" .venv
        $uv pip sync -q --compile-bytecode --python .venv/bin/python --require-hashes requirements/dev.txt
        rm -f .venv/stamp-weft # sync removes what the file does not list: weft itself
        echo "$want" >.venv/stamp-packages
    fi
    want=$(stamp pyproject.toml)
    if ! done_before .venv/stamp-weft "$want"; then
        say "installing weft, editable, into .venv"
        $uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation --offline -e .
        echo "$want" >.venv/stamp-weft
    fi
    # As pip does for what it installs. Where PYTHONDONTWRITEBYTECODE is set nobody else would, and each start compiled.
    .venv/bin/python -m compileall -q src
}

install_release_tools() {
    local want uv=.venv-tools/bin/uv python_version machine
    want=$(stamp scripts/setup.sh requirements/{release,run,image}.txt <("$python" -VV))
    done_before .venv-release/stamp "$want" && return
    say "installing $(grep -c '^[a-z].*==' requirements/release.txt) locked packages into .venv-release"
    scripts/cross.sh aarch64 >/dev/null
    scripts/image-packages.sh >/dev/null
    [ -x .venv-release/bin/python ] || $uv venv -q --python "$python" .venv-release
    $uv pip sync -q --compile-bytecode --python .venv-release/bin/python --require-hashes requirements/release.txt
    GOBIN=$PWD/.venv-release/bin go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 2>build/setup-go.log ||
        { tail -n 5 build/setup-go.log >&2; fail 'Go could not build actionlint: it needs Go 1.24 or newer'; }
    # What Debian packages bring along, into uv's cache: scripts/deb.sh takes it from there.
    for python_version in 3.11 3.13; do
        for machine in x86_64 aarch64; do
            scripts/needs.sh $machine $python_version build/needs
        done
    done
    rm -rf build/needs
    echo "$want" >.venv-release/stamp
}

build_programs() {
    local want
    want=$(stamp src/weft/cni/client/* src/weft/cni/launch/* src/weft/forward/relay/* src/weft/forward/bpf/*)
    [ -x src/weft/cni/bin/weft-cni ] && [ -x src/weft/cni/bin/weft-launch ] && [ -x src/weft/cni/bin/weft-init ] &&
        [ -x src/weft/forward/bin/weft-relay ] && [ -f src/weft/forward/bin/path.o ] &&
        done_before .venv/stamp-programs "$want" && return
    say "building the CNI client, the relay and the programs for the kernel"
    .venv/bin/python -m weft.cni.build
    .venv/bin/python -m weft.forward.build
    echo "$want" >.venv/stamp-programs
}

mkdir -p build
install_packages
python=$(find_python)
install_uv
install_environment
build_programs
[ "${1:-}" != release ] || install_release_tools
