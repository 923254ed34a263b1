"""Tunnels that several back ends use: their devices, and what they need for each peer."""
