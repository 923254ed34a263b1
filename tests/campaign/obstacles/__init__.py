"""What a kernel can do to a packet, as constructors drawn by seed, and two small nodes to put it into."""
