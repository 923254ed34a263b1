"""Which capabilities the daemon keeps."""

from weft.daemon.process.rights import KEPT, kept

_SYS_MODULE = 1 << 16


def test_modules_may_be_loaded_only_while_the_bridge_filter_is_not_there(tmp_path):
    assert kept(tmp_path) == sum(1 << number for number in KEPT)
    assert kept(tmp_path / "bridge") == kept(tmp_path) | _SYS_MODULE
