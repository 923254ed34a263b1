"""Many nodes on one machine: namespaces with real daemons, plugins and a real store.

One supervisor process per lab owns everything; commands reach it by its socket. The machine's own network namespace,
rules and settings stay untouched.
"""
