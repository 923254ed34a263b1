"""The committed stubs are what etcd.proto generates."""

import subprocess
import sys
from pathlib import Path

import weft

SOURCE = Path(weft.__file__).parent.parent
PROTO = "weft/cluster/etcd/rpc/etcd.proto"


def test_stubs_are_generated_from_the_proto(tmp_path):
    plugin = Path(sys.executable).parent / "protoc-gen-grpclib_python"
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpclib_python")]
    argv = [f"-I{SOURCE}", *outputs, f"--plugin=protoc-gen-grpclib_python={plugin}", str(SOURCE / PROTO)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *argv], check=True, timeout=200)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    assert [path.name for path in made] == ["etcd_grpc.py", "etcd_pb2.py", "etcd_pb2.pyi"]
    for path in made:
        assert (SOURCE / path).read_text() == (tmp_path / path).read_text(), f"generate {path} anew, as etcd.proto says"
