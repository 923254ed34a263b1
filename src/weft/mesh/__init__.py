"""The mesh: which peers there are, how they are linked, and who owns which blocks. Pure: no I/O, `now` is an argument.

The I/O side makes one core and tells it everything, one call at a time:

    core = Core(kept, options, chance)              # chance() is in [0, 1)
    core.start(now)
    core.link_up(link, hello, now, dialled=address) # None for a link that the other side has made
    core.link_down(link, now)                       # also after our own Close
    core.undialled(address, now)                    # a Dial that came to nothing
    core.received(link, message, now)
    core.asked(command, now)                        # raises ConfigError for what it refuses
    core.tick(now)                                  # wanted at core.due

Each returns the list of effects to carry out, in order. What comes after a `Keep`, in this list and in later ones,
waits until that `Keep` is on disk. Messages of a link are sent in order or not at all; a link that loses one is down.
`now` is in seconds of any clock that only goes forward; one that leaps between two calls of `tick` makes the core
judge nobody for that time. The same calls with the same chance give the same effects.
"""
