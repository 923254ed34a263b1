"""C programs of weft, built by `make` from the source beside them into `bin/`. Wheels carry them, git does not.

musl's compiler (Debian's `musl-tools`) makes small static programs that run on any distribution; clang makes eBPF.
"""

import shutil
import subprocess
from pathlib import Path

from weft.model.value import Value


class Program(Value):
    source: Path
    path: Path
    what: str
    module: str  # that builds it
    compiler: str = "musl-gcc"
    package: str = "musl-tools"  # Debian's, of the compiler

    @property
    def hint(self) -> str:
        return f"apt-get install {self.package} make; python -m {self.module}"

    def built(self) -> Path | None:
        return self.path if self.path.is_file() else None

    def build(self) -> Path | None:
        """None without a compiler. Raises `CalledProcessError`."""
        if shutil.which(self.compiler) is None or shutil.which("make") is None:
            return None
        self.path.parent.mkdir(exist_ok=True)
        subprocess.run(["make", "--silent", "-C", str(self.source), f"OUT={self.path}"], check=True)
        return self.path

    def main(self) -> int:
        built = self.build()
        if built is None:
            print(f"No {self.compiler} or no make here, so there is no {self.what}. On Debian: {self.hint}")  # noqa: T201
            return 0
        print(f"{built}: {built.stat().st_size} bytes")  # noqa: T201
        return 0
