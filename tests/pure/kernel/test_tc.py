"""Traffic control's messages without a kernel. What it takes, tests/kernel/test_cni_bandwidth.py shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.kernel import tc
from weft.kernel.attributes import Malformed, attribute, nest, text
from weft.model.shaping import Bucket

HEAD = bytes(20)


@pytest.mark.parametrize("rate", [1, 0xFFFFFFFF, 0x100000000, 10**12])
def test_buckets_come_back(rate):
    bucket = Bucket(rate=rate, limit=7, buffer=9)
    assert tc.parse_bucket(tc.set_bucket(3, bucket).body) == bucket


def test_what_is_no_bucket():
    assert tc.parse_bucket(tc.add_ingress(3).body) is None
    with pytest.raises(Malformed):
        tc.parse_bucket(HEAD + text(tc.TCA_KIND, "tbf"))


def test_where_a_filter_leads():
    assert tc.redirected_to(tc.redirect(3, to=5).body) == [5]
    assert tc.redirected_to(HEAD + text(tc.TCA_KIND, "bpf")) == []
    assert tc.kind_of(tc.add_ingress(3).body) == "ingress"


def action(kind: str, parameters: bytes) -> bytes:
    options = nest(tc.TCA_ACT_OPTIONS, attribute(tc.TCA_MIRRED_PARMS, parameters))
    inner = nest(1, text(tc.TCA_ACT_KIND, kind), options)
    return HEAD + text(tc.TCA_KIND, "u32") + nest(tc.TCA_OPTIONS, nest(tc.TCA_U32_ACT, inner))


def test_actions_that_lead_nowhere():
    assert tc.redirected_to(action("gact", bytes(28))) == []
    assert tc.redirected_to(action("mirred", bytes(28))) == []  # a mirror, not a redirection
    with pytest.raises(Malformed):
        tc.redirected_to(action("mirred", bytes(8)))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(data):
    for read in (tc.parse_bucket, tc.redirected_to, tc.kind_of):
        try:
            read(HEAD + data)
        except Malformed:
            continue
