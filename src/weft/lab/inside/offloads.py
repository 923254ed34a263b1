"""What a link leaves to the one behind it (ethtool(8); linux/ethtool.h): on this machine that may be nothing at all."""

import array
import fcntl
import socket
import struct
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STXCSUM: Final = 0x17  # struct ethtool_value: the command, and 0 or 1


def finish_checksums(link: str) -> None:
    """Have checksums of what leaves by a link of this namespace be written before, as a cable would need it.

    A packet between namespaces is otherwise one whose checksums nothing writes, and a NAT that translates the outer
    addresses of such a datagram of VXLAN spoils its outer checksum: it takes it for one that is to be finished, and it
    is finished already (net/netfilter/nf_nat_proto.c; Documentation/networking/checksum-offloads.rst, LCO). `OSError`.
    """
    value = array.array("I", (_ETHTOOL_STXCSUM, 0))
    place, _ = value.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP8x", link.encode(), place))
