"""What is read from iperf3's JSON, and how it is told."""

import pytest

from weft.lab.commands.using.iperf import measured, text

WAY = {"source": "pod1-1", "target": "pod2-1", "address": "10.244.2.2"}
TCP = {
    "sum_sent": {"seconds": 2.0, "bits_per_second": 13e9, "retransmits": 7},
    "sum_received": {"seconds": 2.04, "bits_per_second": 12.5e9},
}


def udp(packets: int, lost: int) -> dict[str, object]:
    return {"sum": {"seconds": 2.0, "bits_per_second": 1e9, "packets": packets, "lost_packets": lost}}


@pytest.mark.parametrize(
    "end, said",
    [
        (TCP, "TCP, 2.0 s: 12.50 Gbit/s, 7 segments sent again"),
        (udp(1000, 250), "UDP, 2.0 s: 0.75 Gbit/s, 250 of 1000 packets lost (25.0 %)"),
        (udp(0, 0), "UDP, 2.0 s: 0.00 Gbit/s, 0 of 0 packets lost (0.0 %)"),
    ],
)
def test_what_arrived_is_told(end, said):
    found = measured({"end": end}, **WAY)
    assert text(found) == f"pod1-1 -> pod2-1 (10.244.2.2), {said}\n"
    assert (found.retransmits is None) == (found.protocol == "UDP") == (found.packets is not None)
