"""What is heard of a monitor of drops: the alerts are a test's, sent to its group, because few kernels have one."""

import socket

from tests.pure.kernel.test_dropmonitor import FAMILY, FRAME, WHOLE, datagram
from tests.support.netns import Netns
from weft.kernel.dropmonitor import Alerts
from weft.kernel.genetlink import NETLINK_GENERIC

GROUP = 1  # as a mask


def test_a_flood_is_heard_in_parts_and_what_finds_no_room_is_counted(netns: Netns):
    sent = 30_000
    alerts = netns.call(lambda: Alerts(FAMILY))
    sender = netns.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC))
    assert (list(alerts.take()), alerts.unheard()) == ([], 0)
    for _ in range(sent):
        sender.sendto(datagram(*WHOLE), (0, GROUP))
    first = list(alerts.take())
    assert {each.frame for each in first} == {FRAME}
    heard, parts = len(first), 1
    while part := len(list(alerts.take())):
        heard, parts = heard + part, parts + 1
    assert alerts.unheard() == sent - heard > 0
    assert parts > 1
    sender.sendto(datagram(*WHOLE), (0, GROUP))
    assert len(list(alerts.take())) == 1
    sender.close()
    alerts.close()
