"""rtnetlink: links, addresses, routes, neighbours, and changes of them."""
