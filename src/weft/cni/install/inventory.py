"""What weft has put into a node's CNI directories, so that exactly that is taken away.

A file is ours as long as it has content that we gave it. Programs of ours are known without the list (`judging`).
"""

import json
from pathlib import Path
from typing import Final

from weft.cni.install import files, judging
from weft.kernel import statefiles
from weft.model.errors import ConfigError, Problem
from weft.model.value import Value, field

LIST: Final = ".weft-installed"
_MAX_BYTES: Final = 1 << 20


class Inventory(Value, frozen=False):
    """What is about to be put there is noted before, so a file may have several digests."""

    bin_dir: Path
    digests: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, bin_dir: Path) -> "Inventory":
        """`ConfigError` if somebody has broken the list."""
        path = bin_dir / LIST
        try:
            known = json.loads(statefiles.read(path, limit=_MAX_BYTES))
            return cls(bin_dir=bin_dir, digests={name: list(map(str, digests)) for name, digests in known.items()})
        except FileNotFoundError:
            return cls(bin_dir=bin_dir)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            expected, hint = "what 'weft cni install' has written", "'weft cni install' writes it again."
            seen = f"it cannot be read: {error}"
            problem = Problem(code="HOST-002", where=str(path), seen=seen, expected=expected, hint=hint)
            raise ConfigError(problem) from error

    @classmethod
    def found(cls, bin_dir: Path) -> "Inventory":
        try:
            return cls.read(bin_dir)
        except ConfigError:
            return cls(bin_dir=bin_dir)

    def write(self) -> None:
        if self.digests:
            files.put(self.bin_dir / LIST, json.dumps(self.digests, indent=2).encode() + b"\n", mode=0o644)
        else:
            files.remove(self.bin_dir / LIST)

    @property
    def programs(self) -> list[str]:
        return [name for name in self.digests if "/" not in name and not name.startswith(".")]

    def owns(self, name: str) -> bool:
        seen = judging.see(self.bin_dir / name)
        return seen is not None and not seen.link and seen.digest in self.digests.get(name, ())

    def expect(self, name: str, content: bytes) -> None:
        digests = self.digests.setdefault(name, [])
        if judging.digest(content) not in digests:
            digests.append(judging.digest(content))
