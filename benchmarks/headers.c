/* The least that back end udp can be in the kernel: headers put on and taken off at the two devices, for one peer that
 * the compiler knows, without a look at a route or at what comes. A floor for the benchmark, and for nothing else.
 *
 * OWN and PEER are addresses as they are in memory, UPLINK and DEVICE interface indexes, PORT a number.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#define htons(x) ((__be16)__builtin_bswap16((__u16)(x)))

struct outer {
    struct iphdr ip;
    struct udphdr udp;
};

static long (*const load)(struct __sk_buff *, __u32, void *, __u32) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const store)(struct __sk_buff *, __u32, const void *, __u32, __u64) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const adjust_room)(struct __sk_buff *, __s32, __u32, __u64) = (void *)BPF_FUNC_skb_adjust_room;
static long (*const change_head)(struct __sk_buff *, __u32, __u64) = (void *)BPF_FUNC_skb_change_head;
static long (*const redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;
static long (*const redirect_neigh)(__u32, struct bpf_redir_neigh *, int, __u64) = (void *)BPF_FUNC_redirect_neigh;

__attribute__((section("tc/out"), used)) int out(struct __sk_buff *skb)
{
    struct bpf_redir_neigh next = {.nh_family = 2, .ipv4_nh = PEER};
    __u32 size = skb->len;
    struct outer outer = {
        .ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .saddr = OWN, .daddr = PEER},
        .udp = {.source = htons(PORT), .dest = htons(PORT), .len = htons(sizeof outer.udp + size)},
    };
    const __u16 *words = (const __u16 *)&outer.ip;
    __u32 sum = 0;

    outer.ip.tot_len = htons(sizeof outer + size);
    for (int i = 0; i < 10; i++)
        sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    outer.ip.check = (__u16)~(sum + (sum >> 16));
    if (skb->protocol != htons(ETH_P_IP) ||
        adjust_room(skb, sizeof outer, BPF_ADJ_ROOM_MAC,
                    BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP) < 0 ||
        store(skb, 0, &outer, sizeof outer, 0) < 0 || change_head(skb, ETH_HLEN, 0) < 0)
        return TC_ACT_SHOT;
    return (int)redirect_neigh(UPLINK, &next, sizeof next, 0);
}

__attribute__((section("tc/in"), used)) int in(struct __sk_buff *skb)
{
    struct outer outer;

    if (load(skb, ETH_HLEN, &outer, sizeof outer) < 0 || outer.udp.dest != htons(PORT) ||
        adjust_room(skb, -(int)sizeof outer, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) < 0)
        return TC_ACT_OK;
    return (int)redirect(DEVICE, BPF_F_INGRESS);
}

__attribute__((section("license"), used)) const char terms[] = "GPL";
