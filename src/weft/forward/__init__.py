"""What carries packets in user space: the relay of back end udp, a process of its own, and the way to it."""
