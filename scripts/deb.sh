#!/usr/bin/env bash
# A Debian package of a wheel, beside it: scripts/deb.sh FOLDER-OF-WHEELS x86_64|aarch64 12|13
#
# Its Python packages are below /usr/lib/weft, an environment on Debian's Python: that is why each Debian has a package.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "$1") machine=$2 debian=$3
case $machine in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) exit 2 ;; esac
case $debian in 12) python=3.11 next=3.12 ;; 13) python=3.13 next=3.14 ;; *) exit 2 ;; esac
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022
weft=$(.venv/bin/python -c 'import weft; print(weft.__version__)')
version=$weft-1~deb${debian}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
share=$tree/usr/share
mkdir -p "$tree"/{DEBIAN,usr/bin,usr/sbin} "$share"/{man/man1,man/man8,doc/weft} \
    "$share"/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}

scripts/environment.sh "$folder" "$machine" $python "$tree" /usr/lib/weft
ln -s ../lib/weft/bin/weft "$tree/usr/bin/weft"
ln -s ../lib/weft/bin/weftd "$tree/usr/sbin/weftd"

sed "s|/opt/weft/bin/weftd|/usr/sbin/weftd|; s|/etc/weft/weftd.env|/etc/default/weft|; s|^Documentation=.*|Documentation=man:weftd(8)|" \
    deploy/weftd.service | install -D -m 644 /dev/stdin "$tree/usr/lib/systemd/system/weftd.service"
install -D -m 644 deploy/debian/default "$tree/etc/default/weft"
.venv/bin/python -m scripts.manpages "$share/man/man1"
mv "$share/man/man1/weftd.8" "$share/man/man8"
.venv/bin/weft completion bash >"$share/bash-completion/completions/weft"
ln -s weft "$share/bash-completion/completions/weftd"
.venv/bin/weft completion zsh >"$share/zsh/vendor-completions/_weft"
.venv/bin/weft completion fish >"$share/fish/vendor_completions.d/weft.fish"
cp LICENSE "$share/doc/weft/copyright"
cp CHANGELOG.md "$share/doc/weft/changelog"
gzip -9n "$share"/man/man?/* "$share/doc/weft/changelog"

echo /etc/default/weft >"$tree/DEBIAN/conffiles"
size=$(find "$tree" -type f -printf '%s\n' | awk '{ sum += $1 } END { print int(sum / 1024) }')
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@PYTHON@/$python/; s/@NEXT@/$next~/" \
    deploy/debian/control >"$tree/DEBIAN/control"
install -m 755 deploy/debian/{postinst,prerm,postrm} "$tree/DEBIAN"
chmod -R u=rwX,go=rX "$tree"
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$tree" "$folder/weft_${version}_$architecture.deb" >/dev/null
ls "$folder/weft_${version}_$architecture.deb"
