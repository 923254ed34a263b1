"""`weft trace`: a packet's way on a node, step by step, predicted from the sight and proved by probes."""
