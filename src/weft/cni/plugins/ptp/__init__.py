"""ptp: a pair of links for each container, and routes."""
