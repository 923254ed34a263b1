"""Token buckets and the names of devices: upstream's numbers, until they would not fit."""

import pytest

from weft.cni.plugins import bandwidth
from weft.model.attachment import Attachment
from weft.model.kernel.reported import Bucket, Limit


@pytest.mark.parametrize(
    "rate, burst, bucket",
    [
        (8, 8, Bucket(rate=1, limit=1, buffer=15_625_000)),
        (8_000, 80, Bucket(rate=1000, limit=35, buffer=156_250)),
        (8_000_000, 8_000_000, Bucket(rate=1_000_000, limit=1_025_000, buffer=15_625_000)),
        # 2 s / 3 is cut to whole microseconds before it is told in ticks.
        (24, 16, Bucket(rate=3, limit=2, buffer=10_416_656)),
        (8, 8 * 4_000_000_000, Bucket(rate=1, limit=4_000_000_000, buffer=0xFFFFFFFF)),
        (8 * 10**12, 8 * 10**9, Bucket(rate=10**12, limit=0xFFFFFFFF, buffer=15_625)),
    ],
)
def test_buckets(rate, burst, bucket):
    assert bandwidth.bucket_of(Limit(rate=rate, burst=burst)) == bucket


@pytest.mark.spec("cni.md G16")
def test_names():
    one = Attachment(network="cni-plugin-bandwidth-test", container_id="dummy", ifname="eth0")
    shared, own = bandwidth.ifb_names(one)
    assert shared == "bwpa8eda89404b7"
    other = bandwidth.ifb_names(Attachment(network=one.network, container_id="dummy", ifname="eth1"))
    assert other[0] == shared
    assert len({shared, own, other[1]}) == 3
    assert {len(name) for name in (shared, own)} == {15}
