/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Back end udp in the kernel: two tc programs that put an IPv4 packet into a datagram, and take it out again.
 *
 * `out` sees what is to leave by the relay's device, `in` what the uplink has received. Each does the usual and leaves
 * the rest as it is, for the relay behind it: unknown destinations, the last hop, packets that are too long, fragments,
 * whatever needs an answer. So nothing here has to be complete, but what is done must be right.
 *
 * A packet that the kernel would cut or whose checksum it would compute later goes out so, and the kernel goes on to do
 * either where the outer packet leaves the machine. On a veth it leaves no machine: then the peer gets the whole. Its
 * kernel understands that; a program that reads the datagram does not. So `out` serves peers whose lease says that
 * their kernel takes the datagrams.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define PROGRAM(name) __attribute__((section(name), used))
#define ALWAYS inline __attribute__((always_inline))
#define htons(x) ((__be16)__builtin_bswap16((__u16)(x)))
#define ntohs(x) __builtin_bswap16((__u16)(x))

enum { PASS = TC_ACT_UNSPEC, INET = 2, HOPS = 64, FRAGMENT = 0x3fff, DONT_FRAGMENT = 0x4000, LONGEST = 65535 };
enum { SENT, RECEIVED };
enum { LOOPBACK = 1 }; /* its index in every network namespace */

struct outer {
    struct iphdr ip;
    struct udphdr udp;
};

struct settings {
    __be32 local;
    __be16 port;
    __u16 link_header; /* bytes before a packet that the uplink has received */
    __u32 uplink, device; /* interface indexes */
};

/* A subnet of a peer. */
struct subnet {
    __u32 length; /* of the prefix, in bits */
    __be32 address;
};

struct forward {
    __be32 via;
    __u32 kernel; /* the peer's own takes the datagrams */
};

/* Maps, which the loader makes and whose descriptors it puts in. */
struct map;
extern struct map settings, forwards, counters;

static void *(*const map_lookup)(struct map *, const void *) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const load)(struct __sk_buff *, __u32, void *, __u32) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const store)(struct __sk_buff *, __u32, const void *, __u32, __u64) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const adjust_room)(struct __sk_buff *, __s32, __u32, __u64) = (void *)BPF_FUNC_skb_adjust_room;
static long (*const change_head)(struct __sk_buff *, __u32, __u64) = (void *)BPF_FUNC_skb_change_head;
static long (*const fib_lookup)(struct __sk_buff *, struct bpf_fib_lookup *, int, __u32) = (void *)BPF_FUNC_fib_lookup;
static long (*const redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;
static long (*const redirect_neigh)(__u32, struct bpf_redir_neigh *, int, __u64) = (void *)BPF_FUNC_redirect_neigh;

static ALWAYS const struct settings *our_settings(void)
{
    __u32 first = 0;

    return map_lookup(&settings, &first);
}

static ALWAYS const struct forward *forward_of(__be32 address)
{
    struct subnet key = {32, address};

    return map_lookup(&forwards, &key);
}

/* Each processor has counters of its own. */
static ALWAYS void count(__u32 which)
{
    __u64 *packets = map_lookup(&counters, &which);

    if (packets)
        *packets += 1;
}

/* RFC 1071, of a header without options: the checksum of one where it is 0 yet, 0 for one where it is right. */
static ALWAYS __u16 checksum(const struct iphdr *ip)
{
    const __u16 *words = (const __u16 *)ip;
    __u32 sum = 0;

    for (int i = 0; i < 10; i++)
        sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    return (__u16)~(sum + (sum >> 16));
}

/* Tells whether the checksum of a datagram has been left to a device: it holds the sum of the pseudo-header alone. The
 * kernel still minds it when the headers around it are gone, and NAT would make a wrong checksum of a right one. */
static ALWAYS int is_unfinished(const struct outer *outer)
{
    __u32 sum = (outer->ip.saddr & 0xffff) + (outer->ip.saddr >> 16) + (outer->ip.daddr & 0xffff) +
                (outer->ip.daddr >> 16) + htons(IPPROTO_UDP) + outer->udp.len;

    sum = (sum & 0xffff) + (sum >> 16);
    return outer->udp.check == (__u16)(sum + (sum >> 16));
}

/* Takes one hop from a packet whose header begins at `offset` (RFC 1624). */
static ALWAYS long spend_ttl(struct __sk_buff *skb, __u32 offset, struct iphdr *ip)
{
    __u32 sum = (__u32)ip->check + htons(0x0100);

    ip->ttl--;
    ip->check = (__u16)(sum + (sum >> 16));
    return store(skb, offset + __builtin_offsetof(struct iphdr, ttl), &ip->ttl, 4, 0);
}

/* Bytes of the longest packet that this one becomes on the wire, itself included; 0 if that can't be told. */
static ALWAYS __u32 longest_piece(struct __sk_buff *skb, const struct iphdr *ip)
{
    __u32 header = ip->ihl * 4u;
    __u8 words;

    if (!skb->gso_size)
        return skb->len;
    if (ip->protocol == IPPROTO_UDP)
        return header + sizeof(struct udphdr) + skb->gso_size;
    if (ip->protocol != IPPROTO_TCP || load(skb, header + 12, &words, 1) < 0) /* data offset, in its upper half */
        return 0;
    return header + (words >> 4) * 4u + skb->gso_size;
}

/* Finds the next hop on the uplink for datagrams of so many bytes. What is asked is what the relay's socket would ask,
 * as for what the node itself sends: where another link leads to the peer, the datagrams are the relay's. One whose
 * link-layer address is not known yet, or has been forgotten, is found out when the relay sends to it. */
static ALWAYS int find_path(struct __sk_buff *skb, const struct settings *ours, __be32 peer, __u32 size,
                            struct bpf_redir_neigh *next)
{
    struct bpf_fib_lookup path;

    __builtin_memset(&path, 0, sizeof path); /* gaps too: the verifier may insist */
    path.family = INET;
    path.l4_protocol = IPPROTO_UDP;
    path.sport = path.dport = ours->port;
    path.tot_len = (__u16)size;
    path.ifindex = LOOPBACK;
    path.ipv4_src = ours->local;
    path.ipv4_dst = peer;
    if (fib_lookup(skb, &path, sizeof path, 0) != BPF_FIB_LKUP_RET_SUCCESS || path.family != INET)
        return -1;
    if (path.ifindex != ours->uplink)
        return -1;
    next->nh_family = INET;
    next->ipv4_nh = path.ipv4_dst;
    return 0;
}

PROGRAM("tc/out") int out(struct __sk_buff *skb)
{
    struct bpf_redir_neigh next = {};
    struct iphdr inner;
    struct outer outer = {};
    __u32 size = skb->len, piece;
    const struct settings *ours = our_settings();
    const struct forward *to;

    if (!ours || skb->protocol != htons(ETH_P_IP) || load(skb, 0, &inner, sizeof inner) < 0)
        return PASS;
    if (inner.ihl != 5 || inner.ttl <= 1 || ntohs(inner.tot_len) != size || size > LONGEST - sizeof outer)
        return PASS;
    to = forward_of(inner.daddr);
    piece = longest_piece(skb, &inner);
    if (!to || !to->kernel || !piece || find_path(skb, ours, to->via, sizeof outer + piece, &next) < 0)
        return PASS;
    if (adjust_room(skb, sizeof outer, BPF_ADJ_ROOM_MAC,
                    BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP) < 0)
        return PASS;
    outer.ip.version = 4;
    outer.ip.ihl = 5;
    outer.ip.ttl = HOPS;
    outer.ip.protocol = IPPROTO_UDP;
    outer.ip.frag_off = htons(DONT_FRAGMENT);
    outer.ip.tot_len = htons(sizeof outer + size);
    outer.ip.saddr = ours->local;
    outer.ip.daddr = to->via;
    outer.ip.check = checksum(&outer.ip);
    outer.udp.source = outer.udp.dest = ours->port;
    outer.udp.len = htons(sizeof outer.udp + size);
    /* A device without link-layer headers: the room for the uplink's is filled by redirect_neigh. */
    if (spend_ttl(skb, sizeof outer, &inner) < 0 || store(skb, 0, &outer, sizeof outer, 0) < 0 ||
        change_head(skb, ETH_HLEN, 0) < 0)
        return TC_ACT_SHOT;
    count(SENT);
    return (int)redirect_neigh(ours->uplink, &next, sizeof next, 0);
}

PROGRAM("tc/in") int in(struct __sk_buff *skb)
{
    struct {
        struct outer outer;
        struct iphdr inner;
    } whole;
    struct iphdr *ip = &whole.outer.ip, *inner = &whole.inner;
    const struct settings *ours = our_settings();
    const struct forward *from;

    if (!ours || skb->protocol != htons(ETH_P_IP) || load(skb, ours->link_header, &whole, sizeof whole) < 0)
        return PASS;
    if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP || ip->frag_off & htons(FRAGMENT))
        return PASS;
    if (ip->daddr != ours->local || whole.outer.udp.dest != ours->port || is_unfinished(&whole.outer))
        return PASS;
    /* Datagrams that the kernel has joined, as it does for sockets that ask for it, hold more than one packet. */
    if (ntohs(inner->tot_len) + sizeof whole.outer != ntohs(ip->tot_len) || inner->ttl <= 1)
        return PASS;
    if (inner->version != 4 || inner->ihl != 5 || checksum(inner))
        return PASS;
    from = forward_of(inner->saddr);
    if (!from || from->via != ip->saddr)
        return PASS;
    if (adjust_room(skb, -(int)sizeof whole.outer, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) < 0)
        return PASS;
    if (spend_ttl(skb, ours->link_header, inner) < 0)
        return TC_ACT_SHOT;
    count(RECEIVED);
    return (int)redirect(ours->device, BPF_F_INGRESS);
}

/* The kernel lends fib_lookup to programs under its own licence alone: this file may be used under it, too. */
PROGRAM("license") const char terms[] = "GPL";
