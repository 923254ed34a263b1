"""What nf_tables tells of a packet, from bytes that a kernel sent (Linux 6.18)."""

import socket
from itertools import count

import pytest

from weft.kernel.netfilter.nftrace import steps_in, take
from weft.kernel.rtnetlink.attributes import Malformed

# By the verdict: of a rule that jumps to a chain, of one that drops, of a chain that ends, and of policies.
HEAD = "{length}000000110a0000000000000000000002000000{body}"
ID = "08000600c2797b49"
TABLE, CHAIN = "0600020070000000", "0600010078000000"
HEADER = "4500002cb49c4000400188327f0000017f000001"
PACKET = f"08000a000000000106000b000304000018000800{HEADER}"
JUMP = "0c00030000000000000000031400050008000100fffffffd0600020079000000"
DROP = "0c00030000000000000000090c0005000800010000000000"
TOLD = {
    f"0800040000000003{ID}{TABLE}{CHAIN}{JUMP}{PACKET}": ("rule", 3, "jump y", 1),
    f"0800040000000003{ID}{TABLE}{CHAIN}{DROP}": ("rule", 9, "drop", 0),
    f"0800040000000002{ID}{TABLE}{CHAIN}0c00050008000100ffffffff": ("return", 0, "continue", 0),
    f"0800040000000001{ID}{TABLE}{CHAIN}0800100000000000": ("policy", 0, "drop", 0),
    f"0800040000000001{ID}{TABLE}{CHAIN}0800100000000001": ("policy", 0, "accept", 0),
}


def datagram(body: str) -> bytes:
    return bytes.fromhex(HEAD.format(length=f"{20 + len(body) // 2:02x}", body=body))


@pytest.mark.parametrize("body", TOLD)
def test_what_the_kernel_says_is_a_step(body: str):
    [step] = steps_in(datagram(body))
    assert (step.kind, step.handle, step.verdict, step.iif) == TOLD[body]
    assert step.header.hex() == (HEADER if step.verdict == "jump y" else "")
    assert (step.packet, step.family, step.table, step.chain, step.oif) == (0xC2797B49, "ip", "x", "p", 0)


def test_of_other_messages_there_is_no_step_and_of_an_unknown_type_it_is_said():
    assert list(steps_in(bytes.fromhex("10000000110a00000000000000000000"))) == []
    with pytest.raises(Malformed, match="no known type"):
        list(steps_in(datagram("0800040000000009")))


def test_a_flood_of_packets_like_a_probe_keeps_no_trace_for_ever():
    received = count()

    class Flooded(socket.socket):
        def recv(self, *_: int) -> bytes:
            next(received)
            return b""

    with Flooded() as sock:
        assert list(take(sock)) == []
    assert 1000 < next(received) < 100_000
