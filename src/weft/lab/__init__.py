"""Many nodes on one machine: namespaces with real daemons, real plugins and a real store in them.

One supervisor process per lab owns everything; commands reach it through its socket. Nothing in here
touches the network namespace, the rules or the settings of the machine that it runs on.
"""
