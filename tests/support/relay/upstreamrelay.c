/* A program around upstream's own relay, whose source comes from flannel's Go module.
 *
 *     upstreamrelay DEVICE LOCAL PORT NETWORK PEER
 *
 * NETWORK is a /24. It says "ready" when the device is there.
 */
#define _GNU_SOURCE
#define CMD_DEFINE
#include "proxy_amd64.c"

#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    struct sockaddr_in local = {.sin_family = AF_INET};
    struct command route = {.cmd = CMD_SET_ROUTE, .dest_net_len = 24};
    int tun, udp, control[2];

    if (argc != 6)
        return 2;
    local.sin_port = htons((unsigned short)atoi(argv[3]));
    local.sin_addr.s_addr = inet_addr(argv[2]);
    route.dest_net = inet_addr(argv[4]);
    route.next_hop_ip = inet_addr(argv[5]);
    route.next_hop_port = (short)atoi(argv[3]);
    tun = open("/dev/net/tun", O_RDWR);
    strncpy(request.ifr_name, argv[1], IFNAMSIZ - 1);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (ioctl(tun, TUNSETIFF, &request) < 0 || bind(udp, (struct sockaddr *)&local, sizeof local) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control) < 0 || write(control[1], &route, sizeof route) < 0 ||
        write(1, "ready\n", 6) < 0)
        return 1;
    run_proxy(tun, udp, control[0], inet_addr("10.255.0.1"), 1472, 0);
    return 0;
}
