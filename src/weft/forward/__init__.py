"""The relay of back end udp, a process of its own, and the eBPF programs that relieve it."""
