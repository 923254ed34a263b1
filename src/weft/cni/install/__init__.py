"""weft's plugins on a node: the executables, the network's configuration, and what was there before."""
