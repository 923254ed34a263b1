"""Another `/` for the plugins of a site: /etc and /run of the machine itself stay as they are."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cni.site import Site
from weft.cni.host.files import RootedFiles
from weft.cni.host.host import Host
from weft.cni.host.openat import open_root


@dataclass
class _OtherRoot:
    host: Host
    files: RootedFiles

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)


def give_root(site: Site, path: Path) -> None:
    """Let the plugins of a site find their files below `path`; the descriptor is closed with the site's namespace."""
    descriptor = open_root(str(path))
    files = RootedFiles(descriptor)
    site.host.closing.callback(os.close, descriptor)
    site.wrap = lambda host: _OtherRoot(host, files)
