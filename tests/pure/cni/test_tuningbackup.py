"""tuning's backup file."""

import pytest

from weft.cni.plugins.tuning import backup as tuningbackup
from weft.cni.plugins.tuning.conf import LinkTuning
from weft.model.net import Mac
from weft.wire.cnijson import JsonError


def test_the_file_is_upstreams():
    whole = LinkTuning(mac=Mac.parse("12:7b:79:3a:42:f7"), promisc=False, mtu=1500, allmulti=False, queue_length=1000)
    text = (
        b'{\n "mac": "12:7b:79:3a:42:f7",\n "promisc": false,\n "mtu": 1500,\n "allmulti": false,\n "txQLen": 1000\n}'
    )
    assert tuningbackup.render(whole) == text
    assert tuningbackup.parse(text) == whole
    assert tuningbackup.parse(tuningbackup.render(LinkTuning(mtu=7))) == LinkTuning(mtu=7)
    assert tuningbackup.parse(b'{"mac": "00:00:00:00:00:00", "mtu": 0}').given == {}
    for torn in (b'{"mac"', b'{"mac": "zz"}', b'{"mtu": "x"}'):
        with pytest.raises(JsonError):
            tuningbackup.parse(torn)
