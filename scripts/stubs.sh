#!/usr/bin/env bash
# Generates the messages from our own .proto files, of weft and of its tests, and the tests' gRPC stubs. With --check: says whether the committed
# ones are those.
set -euo pipefail
cd "$(dirname "$0")/.."
check=
[ "${1:-}" != --check ] || check=1

# generate ROOT PACKAGE [FLAG…]: what has names that begin with the package, which lies below the root
generate() {
    local root=$1 out=$1 package=$2 protos
    shift 2
    [ -z "$check" ] || { out=build/stubs; rm -rf $out; mkdir -p $out; }
    mapfile -t protos < <(cd "$root" && find "$package" -name '*.proto')
    .venv/bin/python -m grpc_tools.protoc -I "$root" --python_out=$out --pyi_out=$out "${@/%=/=$out}" \
        "${protos[@]/#/$root/}"
    [ -z "$check" ] || (cd $out && find . -type f | while read -r file; do diff -u "../../$root/$file" "$file"; done)
}

generate src weft
generate . tests --plugin=protoc-gen-grpclib_python=.venv/bin/protoc-gen-grpclib_python --grpclib_python_out=
