"""A relay as upstream's udp has it, written from its specification (flannel.md §6.5) and sharing nothing with ours.

    python -m tests.kernel.naiverelay DEVICE LOCAL PORT SUBNET=PEER…

One packet is read, looked up and sent at a time: no offloads, no batches, no joining. Upstream's knows no IPv6; this
one does with it as with IPv4. Started in a namespace, where it makes its device.
"""

import os
import select
import socket
import struct
import subprocess
import sys
from fcntl import ioctl
from ipaddress import ip_address, ip_network


def less_ttl(packet: bytearray) -> bool:
    """Take one from the time to live as upstream does: RFC 1624 on the first byte of the checksum."""
    if packet[0] >> 4 == 6:
        packet[7] -= 1
        return packet[7] > 0
    if packet[8] <= 1:
        return False
    packet[8] -= 1
    total = struct.unpack(">H", packet[10:12])[0] + 0x0100
    packet[10:12] = struct.pack(">H", (total & 0xFFFF) + (total >> 16))
    return True


def main() -> None:
    device, local, port, *routes = sys.argv[1:]
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    ioctl(tun, 0x400454CA, struct.pack("16sH22x", device.encode(), 0x0001 | 0x1000))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
    subprocess.run(["ip", "link", "set", device, "mtu", "1472", "up"], check=True)
    udp = socket.socket(socket.AF_INET6 if ":" in local else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    udp.bind((local, int(port)))
    peers = [(ip_network(subnet), peer) for subnet, _, peer in (route.partition("=") for route in routes)]
    for subnet, _ in peers:
        subprocess.run(["ip", "route", "add", str(subnet), "dev", device], check=True)
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([tun, udp], [], [])
        if tun in readable:
            packet = bytearray(os.read(tun, 2048))
            destination = packet[24:40] if packet[0] >> 4 == 6 else packet[16:20]
            to = next((peer for net, peer in peers if ip_address(bytes(destination)) in net), None)
            if to and less_ttl(packet):
                udp.sendto(packet, (to, int(port)))
        if udp in readable:
            packet = bytearray(udp.recv(2048))
            if len(packet) >= 20 and less_ttl(packet):
                os.write(tun, packet)


if __name__ == "__main__":
    main()
