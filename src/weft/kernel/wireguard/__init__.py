"""WireGuard: its devices' keys and peers, in the kernel or in a process of wireguard-go's."""
