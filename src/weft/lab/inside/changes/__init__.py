"""Changes of a running lab: links, cuts, stops and starts, the number of nodes."""
