"""Messages about eBPF programs at devices, without a kernel. What it takes, tests/kernel/test_kernelpath.py shows."""

from hypothesis import given
from hypothesis import strategies as st

from tests.pure.bent import bent_bytes
from tests.pure.reach import reached, reaches
from weft.kernel.rtnetlink import tc
from weft.kernel.rtnetlink.attributes import Malformed, nest, text, u32

HEAD = bytes(20)


def listed(name: str, program: int, kind: str = "bpf") -> bytes:
    """What the kernel lists of a program: TCA_BPF_NAME and TCA_BPF_ID among its options."""
    return HEAD + text(1, kind) + nest(2, text(7, name), u32(11, program))


def test_a_program_is_found_by_its_name_and_number():
    assert tc.parse_hooked(listed("a", 5)) == tc.Hooked(priority=0, kind="bpf", name="a", program=5)


def test_what_is_no_program_has_a_priority():
    body = tc.delete_program(7, tc.HOOK_OUT, 166).body
    nothing = {"name": "", "program": 0}
    assert tc.parse_hooked(body) == tc.Hooked(priority=166, kind="bpf", **nothing)  # the head of a list
    assert tc.parse_hooked(listed("a", 5, kind="u32")) == tc.Hooked(priority=0, kind="u32", **nothing)


def test_a_device_that_programs_can_be_attached_to():
    assert tc.hooks_in(tc.add_clsact(7).body) == (7, (tc.HOOK_IN, tc.HOOK_OUT))
    assert tc.hooks_in(HEAD + text(1, "ingress")) == (0, (tc.HOOK_IN,))
    assert tc.hooks_in(HEAD + text(1, "fq")) == (0, ())


BODIES = st.one_of(
    st.builds(listed, st.text(max_size=9).filter(lambda name: "\0" not in name), st.integers(1, 99)),
    st.integers(1, 9).map(lambda index: tc.add_clsact(index).body),
    st.binary(max_size=60).map(lambda data: HEAD + data),
    st.binary(max_size=20),
)


@reaches(program=0.03, device=0.03, malformed=0.05)
@given(bent_bytes(BODIES))
def test_any_bytes_are_read_or_malformed(data):
    for point, read in (
        ("program", lambda body: tc.parse_hooked(body).program),
        ("device", lambda body: tc.hooks_in(body)[1]),
    ):
        try:
            if read(data):
                reached(point)
        except Malformed:
            reached("malformed")
