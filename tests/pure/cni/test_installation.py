"""What of this installation goes along with copies of weft."""

from importlib.metadata import PackageNotFoundError

import pytest

from weft.cni.install import installation
from weft.cni.install.installation import Tree, add_packages
from weft.model.errors import ConfigError


def test_what_weft_needs_goes_along():
    tree = Tree()
    add_packages(tree, "/lib")
    assert {"/lib/weft/cli.py", "/lib/click/__init__.py", "/lib/msgspec/__init__.py"} <= tree.files.keys()


def test_a_weft_that_is_not_installed_makes_no_copy_that_cannot_run(monkeypatch):
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", missing)
    with pytest.raises(ConfigError, match=r"INST-004 .*not whole: No package metadata was found for weft-cni"):
        add_packages(Tree(), "/lib")
