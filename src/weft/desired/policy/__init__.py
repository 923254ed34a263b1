"""Which packets policies allow, as what a node's tables of policies should hold: chains, sets and elements."""
