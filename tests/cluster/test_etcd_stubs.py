"""The committed messages are what etcd.proto generates."""

import subprocess
import sys
from pathlib import Path

import weft

SOURCE = Path(weft.__file__).parent.parent
PROTO = "weft/cluster/etcd/rpc/etcd.proto"


def test_messages_are_generated_from_the_proto(tmp_path):
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    argv = [f"-I{SOURCE}", *outputs, str(SOURCE / PROTO)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *argv], check=True, timeout=200)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    assert [path.name for path in made] == ["etcd_pb2.py", "etcd_pb2.pyi"]
    for path in made:
        assert (SOURCE / path).read_text() == (tmp_path / path).read_text(), f"generate {path} anew, as etcd.proto says"
