"""Which capabilities the daemon keeps."""

from weft.daemon.process.rights import KEPT


def test_what_is_kept_is_named_by_the_kernels_numbers():
    """CHOWN, DAC_OVERRIDE, FOWNER, NET_BIND_SERVICE, NET_ADMIN, NET_RAW, PERFMON and BPF: linux/capability.h."""
    assert sum(1 << number for number in KEPT) == 0xC0_0000_340B
