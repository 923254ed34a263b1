"""rtnetlink: links, addresses, routes, neighbours and what changes among them. The only netlink but for netfilter."""
