/* The relay of back end udp: inner IPv4 and IPv6 packets between a TUN device and a UDP socket, one in each datagram.
 *
 * What is in packet.c, split.c, join.c, icmp.c and table.c is pure: it does no system call, so it is tested and fuzzed
 * by itself. Packets come from other nodes and from pods, and are trusted in nothing.
 *
 * Header fields are read by byte and stay in network order unless a name says otherwise; a checksum's sum is the same
 * in either order (RFC 1071), so it is made of the machine's own words.
 */
#ifndef RELAY_H
#define RELAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    MAX_QUEUES = 8,
    MAX_PACKET = 65535,         /* bytes of a packet */
    MAX_DATAGRAM = 65507,       /* bytes that a UDP datagram carries, and a train of them that is sent at once */
    MAX_SEGMENTS = 64,          /* datagrams of a train (UDP_MAX_SEGMENTS, linux/udp.h, before 6.2) */
    IP_HEADER = 20,
    IPV6_HEADER = 40,
    UDP_HEADER = 8,
    TCP_HEADER = 20,
    MAX_HEADERS = 160,          /* IPv4 and TCP with all options; IPv6 with TCP's and 60 bytes of its own */
    ICMP_ERROR = 8,             /* bytes before the packet that an ICMP error quotes */
    LEAST_MTU = 1280,           /* of IPv6 (RFC 8200 section 5) */
    MAX_ICMP = 576 - IP_HEADER, /* RFC 1812 section 4.3.2.3 */
    MAX_ICMP6 = LEAST_MTU - IPV6_HEADER, /* RFC 4443 section 2.4 (c) */
};

/* struct virtio_net_hdr of linux/virtio_net.h, which a TUN device with IFF_VNET_HDR puts before each packet. */
struct vnet {
    uint8_t flags, gso_type;
    uint16_t header_size, gso_size, csum_start, csum_offset;
};

enum {
    VNET_NEEDS_CSUM = 1,
    VNET_DATA_VALID = 2,
    VNET_TCP4 = 1,
    VNET_TCP6 = 4,
    VNET_UDP = 5,
    VNET_ECN = 0x80,
};

enum { HOP_BY_HOP = 0, ICMP = 1, TCP = 6, UDP = 17, ROUTING = 43, FRAGMENT = 44, ICMP6 = 58, OPTIONS = 60 };

static inline int is_v6(const unsigned char *ip)
{
    return ip[0] >> 4 == 6;
}

/* The protocol of what follows the IP header. */
static inline int protocol_of(const unsigned char *ip)
{
    return is_v6(ip) ? ip[6] : ip[9];
}

/* packet.c */
uint64_t sum_of(const unsigned char *data, size_t size);
/* The ones' complement of a sum, to be stored with `put_native`. */
uint16_t checksum_of(uint64_t sum);
/* The same without the complement: what stands in a checksum's place for the kernel to complete. */
uint16_t folded(uint64_t sum);
/* Of what stands for the IP header in the checksum of `size` bytes of a protocol. */
uint64_t pseudo_sum(const unsigned char *ip, int protocol, size_t size);
uint16_t get16(const unsigned char *at);
void put16(unsigned char *at, size_t number);
uint32_t get32(const unsigned char *at);
void put32(unsigned char *at, uint32_t number);
uint64_t get64(const unsigned char *at);
void put64(unsigned char *at, uint64_t number);
void put_native(unsigned char *at, uint16_t sum);
/* Without IPv6's extension headers. */
size_t ip_header_size(const unsigned char *ip);
/* The packet's own length, which its header says; 0 if `size` bytes hold no whole packet. */
size_t packet_size(const unsigned char *ip, size_t size);
int header_is_right(const unsigned char *ip);
int is_fragment(const unsigned char *ip); /* of IPv4 */
/* What an IPv6 packet carries behind headers with options, and with `all` behind those for routing and fragments too:
 * its protocol, and where it begins, which may be behind the end. A later fragment carries none that is known. */
int content_of(const unsigned char *ip, size_t size, int all, size_t *at);
/* Tells whether an IPv6 packet has an address that means nothing to another node: it goes to no peer. */
int is_local(const unsigned char *ip);
/* Takes one from the time to live, and mends the checksum (RFC 1624); -1 if the packet may not go on. */
int spend_ttl(unsigned char *ip);
/* Writes the checksum of a packet's content that its sender has left to a device; -1 if it does not say a place. */
int complete(unsigned char *ip, size_t size, const struct vnet *how);

/* split.c: a packet that the kernel has left whole for a device, as the packets that it stands for. */
struct train {
    int segments;
    size_t each, last;          /* bytes of all packets but the last, and of that */
    struct iovec parts[2 * MAX_SEGMENTS]; /* header and content of each */
    unsigned char headers[MAX_SEGMENTS][MAX_HEADERS];
};

/* How many packets are in it, and the bytes of `each`; 0 if `how` does not say what is there. */
size_t segments_of(const unsigned char *ip, size_t size, const struct vnet *how, size_t *each);
/* Makes the packets from number `first` on, at most `most` and as many as `out` has room for. */
void split(struct train *out, const unsigned char *ip, size_t size, const struct vnet *how, size_t first, size_t most);

/* join.c: packets of one flow that follow each other, as one that is left whole for the kernel. */
struct join {
    int udp;                    /* whether UDP is joined, which kernels before 6.2 take from nobody */
    unsigned char *ip;          /* the first; NULL if there is none */
    size_t headers, each, total;
    uint32_t next;              /* TCP's sequence number of a packet that follows */
    int closed;                 /* the last is shorter than `each` or says "push": none follows it */
    int count;
    struct iovec parts[1 + MAX_SEGMENTS]; /* the vnet header, the first packet, then the content of the others */
    struct vnet vnet;
};

/* Takes a packet in; 0 if it does not follow what is there, which is to be ended first. */
int join_add(struct join *join, unsigned char *ip, size_t size);
/* What to write, as `parts` and `count` + 1 of them; the first packet's headers are those of the whole. */
void join_end(struct join *join);

/* icmp.c: the ICMP or ICMPv6 part of an error about a packet; its size, or 0 if there must be none (RFC 1122 section
 * 3.2.2, RFC 4443 section 2.4). The kernel writes the checksum of ICMPv6. */
enum error { UNREACHABLE, TOO_BIG, TIME_EXCEEDED, ERROR_KINDS };
size_t icmp_error(unsigned char *out, const unsigned char *ip, size_t size, enum error error, uint32_t mtu);

/* table.c: which peer has which subnet. */

/* An IPv6 address, in the machine's order; an IPv4 one is mapped into it (RFC 4291 section 2.5.5.2). */
struct address {
    uint64_t high, low;
};

enum { ADDRESS_BITS = 128, MAPPED_BITS = 96 };

static inline struct address mapped(uint32_t v4)
{
    return (struct address){0, 0xffffull << 32 | v4};
}

static inline int is_mapped(struct address address)
{
    return !address.high && address.low >> 32 == 0xffff;
}

struct peer {
    struct address address;
    unsigned uses;              /* routes that lead to it */
    struct peer *next;
    atomic_uint_fast64_t sent, sent_bytes, received, received_bytes;
};

struct route {
    struct address network;
    uint8_t length;
    struct peer *peer;
};

enum { PEER_BUCKETS = 1024 };

struct table {
    pthread_rwlock_t lock;      /* held for reading while a batch of packets is worked on */
    pthread_mutex_t gate;       /* passed by readers first, so that a writer's turn comes however many they are */
    uint64_t generation;        /* counts changes */
    uint32_t count, room, slots; /* `room` is that of `routes`, `slots` that of `index`, a power of two */
    struct route *routes;
    uint32_t *index;            /* open addressing: number of a route and one, 0 for none */
    unsigned lengths[ADDRESS_BITS + 1]; /* routes of each length */
    uint8_t used[ADDRESS_BITS + 1]; /* lengths that occur, the longest first; `kinds` of them */
    int kinds;
    struct peer *peers[PEER_BUCKETS];
};

void table_start(struct table *table);
void table_read(struct table *table);
void table_write(struct table *table);
void table_done(struct table *table);
/* -1 if memory is short; then nothing has changed. */
int table_set(struct table *table, struct address network, int length, struct address peer);
void table_delete(struct table *table, struct address network, int length);
void table_clear(struct table *table);
struct peer *table_find(const struct table *table, struct address destination);
struct peer *table_peer(const struct table *table, struct address address);

/* What a queue has done with packets; `dropped` by why. */
enum drop { NO_ROUTE, UNKNOWN_PEER, MALFORMED, EXPIRED, TOO_LARGE, NOT_SENT, NOT_WRITTEN, LOCAL, DROPS };

struct counters {
    atomic_uint_fast64_t sent, sent_bytes, received, received_bytes, dropped[DROPS];
};

/* queue.c: one queue of the device, served by a thread that sends, receives or does both: `out` and `in` say which. All
 * have one socket. */
struct queue {
    int tun, udp, icmp, icmp6;
    int probe;                  /* tells how wide the way to a peer is */
    uint16_t port;              /* of all peers, in network order */
    struct table *table;
    struct counters counters;
    int64_t second;             /* the one in which errors were sent last, and how many of each kind */
    int errors[ERROR_KINDS];
    struct out *out;
    struct in *in;
};

/* Serves it until the device is gone. */
void *queue_serve(void *queue);

/* out.c: from the device to peers; in.c: from peers to the device. They return 0 when nothing is left to read, 1 when
 * there may be more; the one that reads the device -1 when that is gone. */
struct out *out_start(void);
int out_once(struct queue *queue);
struct in *in_start(int joins_udp);
int in_once(struct queue *queue);

/* queue.c: sends an ICMP error to where a packet came from, unless there were many in this second. */
void say_error(struct queue *queue, const unsigned char *ip, size_t size, enum error error, uint32_t mtu);
void count(atomic_uint_fast64_t *counter, uint64_t number);

/* control.c: what is asked and heard, and the words for it. */
struct daemon {
    int listener;
    const char *about;
    uint32_t confined;
};

/* Answers the daemon; returns when it says that this is the end. */
void control_serve(const struct daemon *daemon, struct table *table, struct queue *queues, int count);

/* confine.c: gives all capabilities away, for this and for whatever it would execute; -1 if that cannot be. */
int drop_rights(void);
/* Gives away all system calls that are not needed from now on, in all threads; 0 if the kernel does not take them, which
 * leaves a process without rights. */
uint32_t confine(void);

#endif
