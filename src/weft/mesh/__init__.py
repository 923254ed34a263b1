"""The mesh: which peers there are, how they are linked, and who owns which blocks. Pure: no I/O, `now` is an argument.

The I/O side makes one core and tells it everything, one call at a time:

    core = Core(kept, options, chance, recalled)    # chance() is in [0, 1); recalled is what an earlier run knew
    core.start(now)
    core.link_up(link, hello, now, dialled=address) # None for a link that the other side has made
    core.link_down(link, now)                       # also after our own Close
    core.undialled(address, now)                    # a Dial that came to nothing
    core.received(link, message, now)
    core.saw(sights, now)                           # what came back on paths; before the first, all carry packets
    core.asked(command, now)                        # raises ConfigError for what it refuses
    core.tick(now)                                  # wanted at core.due

Each returns the list of effects to carry out, in order. What comes after a `Keep`, in this list and in later ones,
waits until that `Keep` is on disk, and `Leases` until `core.recalled` is. Messages of a link are sent in order or not
at all; a link that loses one is down.
`now` is in seconds of any clock that only goes forward; one that leaps between two calls of `tick` makes the core
judge nobody for that time. The same calls with the same chance give the same effects.

`core` has a part for each concern, `state` is what they share, and `recent` how much they remember of anybody:

    blocks      `ring` (tokens), `grants` and `removal` are the rules; `estate`, `removing` and `leaving` follow them
    records     `known` (all, with `digest`), `gossip` and `flood` (to and from neighbours), `publishing` (our own)
    links       `links` (those that are up), `reach` and `dialling` (whom to dial), `graph` (who is linked with whom)
    messages    `hearing` (which part hears what a neighbour says)
    questions   `routing` (over several links), `questions` (whose part answers)
    rings       `founding` (how one begins), `meeting` (two that meet), `copies` (two peers of one key)
    commands    `commands` (which part carries out or refuses each)
    ways        `health` (of one path), `waying` (whom we cannot reach), `ways` (by whom packets go instead)
    WireGuard   `outside` (where others see ours, behind which NAT), `tunnels` (where each peer's is)
"""
