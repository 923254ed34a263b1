"""Socket options that Python's `socket` has no names for (linux/udp.h, linux/in.h, linux/in6.h)."""

UDP_SEGMENT, UDP_GRO = 103, 104
IP_MTU_DISCOVER, IP_MTU = 10, 14
PMTUDISC_WANT, PMTUDISC_DO = 1, 2
IPV6_FREEBIND = 78
IPV6_MTU_DISCOVER, IPV6_MTU = 23, 24
