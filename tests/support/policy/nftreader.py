"""Reads wanted objects of `inet weft-policy` as nft would: what becomes of a packet at hooks prerouting and forward.

It knows the words that chains of policies have, and fails at any other.
"""

import re
from collections import defaultdict
from ipaddress import ip_address, ip_network

from weft.model.kernel.policytable import INET, PolicyChain, PolicyElement, PolicySet

TOKEN = re.compile(r'"[^"]*"|\{[^}]*\}|\S+')
NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
STATEMENTS = ("counter", "comment", "update", "ether", "ct", "fib")
SETS = {"ipv4_addr": 4, "ipv6_addr": 16, "ifname": 16, "inet_proto": 4, "inet_service": 4}
SETS |= {"iifname": 16, "@th,64,128": 16}


class Packet:
    """The first of a flow; `ether` is the frame's type, `icmp` the type of ICMP, an echo request's if it is one.

    `claimed` is the address that a neighbour advertisement is about, `hops` how many the packet may still be sent on.
    `own`: the node has its source.
    """

    def __init__(
        self, flow, *, iifname="eth0", oifname="eth0", icmp=128, ether="", claimed="fe80::1", hops=63, own=False
    ):
        source, target, protocol, port = flow
        self.version = ip_address(source).version
        self.fields = {
            "saddr": ip_address(source),
            "daddr": ip_address(target),
            "l4proto": protocol.lower() if protocol != "ICMP" else {4: "icmp", 6: "icmpv6"}[self.version],
            "dport": port,
            "sport": 40000,
            "nfproto": f"ipv{self.version}",
            "iifname": iifname,
            "oifname": oifname,
            "type": icmp,
            "hoplimit": hops,
            "@th,64,10": int(ip_address(claimed)) >> 118,
            "@th,64,128": ip_address(claimed),
        }
        self.ether = ether or {4: "ip", 6: "ip6"}[self.version]
        self.own = own
        self.ports = self.fields["l4proto"] in ("tcp", "udp", "sctp")


class Reader:
    def __init__(self, objects, table=INET):
        mine = [thing for thing in objects if getattr(thing, "table", None) == table]
        self.chains = {each.name: each for each in mine if isinstance(each, PolicyChain)}
        self.sets = {each.name: each for each in mine if isinstance(each, PolicySet)}
        self.elements = defaultdict(dict)
        for each in mine:
            if isinstance(each, PolicyElement):
                fields = self.sets[each.set].spec.split(";")[0].removeprefix("type ").split(" : ")[0].split(" . ")
                fields[0] = fields[0].removeprefix("typeof ")
                assert len(each.element) == sum(SETS[field] for field in fields), each
                assert not each.verdict or each.verdict == "accept" or each.verdict in self.chains, each
                self.elements[each.set][each.element] = each.verdict
        self.counted = []

    def passes(self, packet, hook="forward"):
        base = [each for each in self.chains.values() if f" hook {hook} " in each.hook]
        for chain in sorted(base, key=lambda each: int(re.search(r"priority (-?\d+)", each.hook)[1])):
            if self.run(chain, packet) == "drop":
                return False
        return True

    def run(self, chain, packet):
        """`accept`, `drop`, or None where the chain ends."""
        for text in chain.rules:
            verdict, name = self.rule(TOKEN.findall(text), packet)
            if verdict in ("accept", "drop", "return"):
                return None if verdict == "return" else verdict
            if verdict in ("goto", "jump"):
                found = self.run(self.chains[name], packet)
                if found or verdict == "goto":
                    return found
        return None

    def rule(self, words, packet):
        """The verdict and its chain; None where the packet does not meet the rule."""
        while words:
            word = words[0]
            if word in ("accept", "drop", "goto", "jump", "return"):
                return word, "".join(words[1:2])
            words = self.statement(words, packet) if word in STATEMENTS else self.match(words, packet)
            if words is None:
                return None, ""
            if words and words[0].startswith("vmap="):
                verdict = words[0].removeprefix("vmap=")
                return ("accept", "") if verdict == "accept" else ("goto", verdict)
        return None, ""

    def statement(self, words, packet):
        """The words behind a statement, or None where the rule ends with it."""
        word, *rest = words
        if word == "counter":
            return rest
        if word == "comment":
            return rest[1:]
        if word == "update":
            self.counted.append(rest[:2])
            return rest[2:] if packet.ports else None
        if word == "ether":
            return rest[2:] if rest[:2] == ["type", packet.ether] else None
        if word == "fib":
            assert rest[:3] == ["saddr", "type", "local"]
            return rest[3:] if packet.own else None
        assert rest[:2] == ["state", "established,related"]
        return None  # the packet is the first of a flow

    def match(self, words, packet):
        """The words behind a match that the packet meets, else None."""
        values = []
        while True:
            value, words = self.value(words, packet)
            if value is None:
                return None
            values.append(value)
            if words[0] != ".":
                break
            words = words[1:]
        if words[0] == "&":
            mask = int(ip_address(words[1]))
            values, words = [type(values[0])(int(values[0]) & mask)], words[2:]
        negated = words[0] == "!="
        words = words[1:] if negated else words
        if words[0] == "vmap":
            verdict = self.elements[words[1].removeprefix("@")].get(key(values))
            return None if verdict is None else [f"vmap={verdict}"]
        if words[0].startswith("@"):
            assert words[0][1:] in self.sets, words[0]
            found = key(values) in self.elements[words[0][1:]]
        elif words[0].startswith("{"):
            found = any(is_one(values[0], each) for each in words[0].strip("{} ").split(", "))
        else:
            found = is_one(values[0], words[0])
        return words[1:] if found != negated else None

    def value(self, words, packet):
        """What the packet has of the field that the words begin with, None for none, and the words behind."""
        word, *rest = words
        if word in ("iifname", "oifname") or word.startswith("@th,"):
            return packet.fields[word], rest
        name, *rest = rest
        fields = packet.fields
        proto = fields["l4proto"]
        found = {
            "ip": (packet.version == 4, name),
            "ip6": (packet.version == 6, name),
            "meta": (True, name),
            "icmpv6": (proto == "icmpv6", name),
            "arp": (packet.ether == "arp", name),
            "th": (packet.ports, name),
            **{each: (proto == each, name) for each in ("tcp", "udp", "sctp")},
        }
        there, field = found[word]
        return (fields[field] if there else None), rest[1:] if word == "arp" else rest


def key(values):
    """The bytes of a concatenation."""
    made = b""
    for value in values:
        if isinstance(value, int):
            made += value.to_bytes(2, "big") + bytes(2)
        elif isinstance(value, str):
            made += bytes([NUMBERS[value], 0, 0, 0]) if value in NUMBERS else value.encode().ljust(16, b"\0")
        else:
            made += value.packed
    return made


def is_one(value, said):
    if isinstance(value, str):
        return value == said
    if isinstance(value, int):
        first, _, last = said.partition("-")
        return int(first, 0) <= value <= int(last or first, 0)
    return value in ip_network(said)
