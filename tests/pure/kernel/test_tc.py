"""Traffic control's messages without a kernel. What it takes, tests/kernel/test_cni_bandwidth.py shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes
from tests.pure.reach import reached, reaches
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.attributes import Malformed, attribute, nest, text
from weft.model.kernel.reported import Bucket

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


REDIRECTIONS = st.integers(1, 9).map(lambda index: tc.redirect(3, to=index).body)
BODIES = st.one_of(
    st.builds(Bucket, rate=st.integers(1, 10**12), limit=st.integers(1, 9999), buffer=st.integers(1, 9999)).map(
        lambda bucket: tc.set_bucket(3, bucket).body
    ),
    REDIRECTIONS,
    REDIRECTIONS.map(bytes),  # twice, because few of those that are bent still lead somewhere
    st.builds(action, st.sampled_from(["mirred", "gact"]), st.binary(min_size=26, max_size=30)),
    st.binary(max_size=60).map(lambda data: HEAD + data),
)


@reaches(bucket=0.03, redirection=0.03, malformed=0.05)
@given(bent_bytes(BODIES))
def test_any_bytes_are_read_or_malformed(data):
    for point, read in (("bucket", tc.parse_bucket), ("redirection", tc.redirected_to), ("", tc.kind_of)):
        try:
            if read(data) and point:
                reached(point)
        except Malformed:
            reached("malformed")
