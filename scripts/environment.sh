#!/usr/bin/env bash
# Lays weft and the locked packages that it needs into a tree, as an environment on a Debian's own Python:
#
#   scripts/environment.sh FOLDER-OF-WHEELS x86_64|aarch64 PYTHON TREE PLACE-IN-TREE
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 machine=$2 python=$3 place=$5 home=$4$5
site=$home/lib/python$python/site-packages
mkdir -p "$site" "$home/bin"
scripts/needs.sh "$machine" "$python" "$site" --offline
.venv-tools/bin/uv pip install --quiet --python .venv/bin/python --python-platform "$machine-manylinux_2_36" --python-version "$python" \
    --target "$site" --link-mode copy --no-deps --no-index --find-links "$folder" \
    "weft-cni==$(.venv/bin/python -c 'import weft; print(weft.__version__)')"
# Programs that name the Python which installed them, and uv's notes; RECORD would name both, by sums that differ each time.
rm -rf "${site:?}"/{bin,.lock,*.dist-info/uv_cache.json}
sed -i '\#^bin/#d; /uv_cache\.json/d' "$site"/*.dist-info/RECORD
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' >"$home/pyvenv.cfg"
ln -s --relative "$4/usr/bin/python$python" "$home/bin/python3"
for program in weft weftd; do
    printf '#!%s/bin/python3\nfrom weft.console import %s\n%s()\n' "$place" $program $program >"$home/bin/$program"
    chmod 755 "$home/bin/$program"
done
