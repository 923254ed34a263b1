"""Which capabilities the daemon keeps."""

from weft.daemon.process.rights import KEPT, kept

_SYS_MODULE = 1 << 16


def test_what_is_kept_is_named_by_the_kernels_numbers():
    """CHOWN, DAC_OVERRIDE, FOWNER, NET_BIND_SERVICE, NET_ADMIN, NET_RAW, PERFMON and BPF: linux/capability.h."""
    assert sum(1 << number for number in KEPT) == 0xC0_0000_340B


def test_modules_may_be_loaded_only_while_the_bridge_filter_is_not_there(tmp_path):
    assert kept(tmp_path) == sum(1 << number for number in KEPT)
    assert kept(tmp_path / "bridge") == kept(tmp_path) | _SYS_MODULE
