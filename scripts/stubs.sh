#!/usr/bin/env bash
# Generates the gRPC stubs from our own .proto files. With --check: says whether the committed ones are those.
set -euo pipefail
cd "$(dirname "$0")/.."
out=src
[ "${1:-}" != --check ] || { out=build/stubs; rm -rf $out; mkdir -p $out; }
mapfile -t protos < <(cd src && find weft -name '*.proto')
.venv/bin/python -m grpc_tools.protoc -I src --plugin=protoc-gen-grpclib_python=.venv/bin/protoc-gen-grpclib_python \
    --python_out=$out --pyi_out=$out --grpclib_python_out=$out "${protos[@]/#/src/}"
[ $out = src ] || (cd $out && find . -type f | while read -r file; do diff -u "../../src/$file" "$file"; done)
