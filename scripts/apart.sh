#!/bin/sh
# Runs a command apart from the machine: scripts/apart.sh COMMAND…
#
# In a network namespace of its own, so that not even a faulty test can reach the machine's; and with an empty /run, and
# empty directories where a daemon or a container runtime of this machine keeps its state, so that neither is seen.
# With the command ends what it has started, however it ended: some of it is made to outlive its starter.
exec unshare --net --mount --pid --fork --kill-child --mount-proc sh -ec '
ip link set lo up
for place in /run /var/lib/weft /var/lib/cni /etc/cni; do
    [ ! -d "$place" ] || mount -t tmpfs -o mode=755 tmpfs "$place"
done
exec catatonit -- "$@"' sh "$@" # the first process takes the statuses of those that have lost their parent
