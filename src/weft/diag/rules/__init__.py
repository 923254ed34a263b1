"""Rules of the packet filter: read from listings, and what they do with a packet. Pure."""
