/* Where peers are, by the family that nodes have between them: IPv4, or IPv6 in a network without. */
#ifndef RELAY_ENDPOINT_H
#define RELAY_ENDPOINT_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "relay.h"

union endpoint {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Fills in where a peer is; returns its size. */
socklen_t locate(union endpoint *to, uint16_t port, const struct peer *peer);
struct address address_of(const union endpoint *from);
/* What a packet to a peer may have at most, without our headers; 0 if that is not known. `probe` is a socket for
 * datagrams, which sends none. */
uint32_t path_mtu(int probe, const struct peer *peer);
/* Has the kernel cut datagrams of a socket that are too long for the way to a peer, or refuse them. */
void let_cut(int udp, const struct peer *peer, int may);

#endif
