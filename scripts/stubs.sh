#!/usr/bin/env bash
# Generates the gRPC stubs from our own .proto files, of weft and of its tests. With --check: says whether the committed
# ones are those.
set -euo pipefail
cd "$(dirname "$0")/.."
check=
[ "${1:-}" != --check ] || check=1

# generate ROOT PACKAGE: stubs whose names begin with the package, which lies below the root
generate() {
    local root=$1 out=$1 protos
    [ -z "$check" ] || { out=build/stubs; rm -rf $out; mkdir -p $out; }
    mapfile -t protos < <(cd "$root" && find "$2" -name '*.proto')
    .venv/bin/python -m grpc_tools.protoc -I "$root" --plugin=protoc-gen-grpclib_python=.venv/bin/protoc-gen-grpclib_python \
        --python_out=$out --pyi_out=$out --grpclib_python_out=$out "${protos[@]/#/$root/}"
    [ -z "$check" ] || (cd $out && find . -type f | while read -r file; do diff -u "../../$root/$file" "$file"; done)
}

generate src weft
generate . tests
