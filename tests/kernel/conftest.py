"""Namespaces for all kernel tests."""

from tests.support.netns import make_netns, netns

__all__ = ["make_netns", "netns"]
