"""eBPF: programs from an object file into the kernel, and the maps that they share with us."""
