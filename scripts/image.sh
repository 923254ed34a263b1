#!/usr/bin/env bash
# The container image of weft for amd64 and arm64, and a list of what is in each (SBOM), into a folder that has the wheels:
#
#   scripts/image.sh FOLDER-OF-WHEELS
#
# An OCI archive, with the entries and paths of deploy/Containerfile's image. Its base is the packages of
# requirements/image.txt, unpacked: none of their scripts run, so it needs no root, no container and no other processor.
# No shell is in it. Needs no network after `scripts/setup.sh release`.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "$1")
python=3.11 # Debian 12's
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022
packages=$(scripts/image-packages.sh)
version=$(.venv/bin/python -c 'import weft; print(weft.__version__)')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names=$(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' requirements/image.txt)

base() { # TREE ARCHITECTURE: what Debian has made, but for what nothing reads
    local tree=$1 architecture=$2 name each
    mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{dev,etc,proc,run,sys,tmp,var/lib/dpkg/status.d}
    for name in bin sbin lib lib64; do ln -s usr/$name "$tree/$name"; done
    for name in $names; do
        dpkg-deb --fsys-tarfile "$packages/$name-$architecture.deb" |
            tar --extract --no-same-owner --keep-directory-symlink --directory="$tree"
        # Where scanners look for the packages of an image without dpkg.
        dpkg-deb --field "$packages/$name-$architecture.deb" >"$tree/var/lib/dpkg/status.d/$name"
    done
    chmod -R u=rwX,go=rX,ug-s "$tree" # no setgid, which only root can unpack
    chmod 1777 "$tree/tmp"
    find "$tree/usr/share/doc" -type f ! -name copyright -delete # licences ask that these be passed on
    rm -rf "$tree"/usr/{games,include,src,local} "$tree"/usr/share/{bash-completion,binfmts,bug,info,lintian,locale,man,python3} \
        "$tree"/{boot,home,media,mnt,opt,root,srv} "$tree"/etc/{apt,bash_completion.d,cron*,init.d,python*,skel,update-motd.d,systemd}
    # Of Python, as of the copy on a node (weft/cni/install/installation.py): what is large, or would need libraries more.
    for each in test idlelib tkinter turtledemo lib2to3 ensurepip pydoc_data sqlite3 curses dbm \
        lib-dynload/{_sqlite3,_dbm,_gdbm,_curses,_curses_panel,nis,ossaudiodev,audioop,readline}.*; do
        rm -rf "$tree/usr/lib/python$python/"$each
    done
    rm -rf "$tree/usr/lib/python$python"/config-*
    for name in iptables ip6tables; do # update-alternatives' work
        for each in '' -save -restore; do ln -s $name-nft$each "$tree/usr/sbin/$name$each"; done
    done
    printf 'root:x:0:0:root:/:/nonexistent\nnobody:x:65534:65534:nobody:/nonexistent:/nonexistent\n' >"$tree/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
    printf 'hosts: files dns\n' >"$tree/etc/nsswitch.conf"
    rm "$tree"/usr/sbin/ip{,6}tables-apply "$tree/usr/lib/python$python/sitecustomize.py" # a script for bash; a link to /etc
    rm -f "$tree/usr/share/doc/base-files/FAQ"
}

weft() { # TREE MACHINE
    scripts/environment.sh "$folder" "$2" $python "$1" /opt/weft
    mkdir "$1/opt/bin"
    cp "$1/opt/weft/lib/python$python/site-packages/weft/cni/bin/weft-init" "$1/opt/bin/flanneld"
    ln -s ../weft/bin/weftd "$1/opt/bin/weftd"
    ln -s ../weft/bin/weft "$1/opt/bin/install-conf"
    ln -s ../weft/bin/weft "$1/opt/bin/mk-docker-opts.sh"
}

compile() { # TREE FOLDER: by this machine's Python of the two, where it lies
    local own=$work/$(uname -m)-base
    PYTHONHOME=$own/usr PYTHONHASHSEED=0 "$own"/usr/lib/*-linux-gnu/ld-linux-*.so.? --library-path "$(echo "$own"/usr/lib/*-linux-gnu)" \
        "$own/usr/bin/python$python" -S -m compileall -q -f --invalidation-mode unchecked-hash -s "$1" -p / "$1/$2"
}

for pair in x86_64:amd64 aarch64:arm64; do
    base "$work/${pair%:*}-base" "${pair#*:}"
    mkdir "$work/${pair%:*}-weft"
    weft "$work/${pair%:*}-weft" "${pair%:*}"
done
for machine in x86_64 aarch64; do
    compile "$work/$machine-base" usr/lib/python$python
    compile "$work/$machine-weft" opt/weft/lib/python$python
done
.venv/bin/python -m scripts.image "$folder" "$version" "amd64=$work/x86_64" "arm64=$work/aarch64"
