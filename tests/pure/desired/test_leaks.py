"""An attachment is leaked on proof only."""

import pytest

from weft.desired.leaks import State, Trace, Verdict, judge

NOW, HERE = "boot-2", 4026531840
LINKS = Trace(boot=NOW, netns=HERE, veth="veth1", index=7)
OTHER = Trace(boot=NOW, netns=HERE)
OLD = Trace(boot="boot-1", netns=HERE)
OLD_LINKS = Trace(boot="boot-1", netns=HERE, veth="veth1", index=7)
ELSEWHERE = Trace(boot=NOW, netns=HERE + 1, veth="veth1", index=7)


def verdict(*traces: Trace, there: bool) -> Verdict:
    asked = []

    def has_host_end(name: str, index: int) -> bool:
        asked.append((name, index))
        return there

    found = judge(traces, boot=NOW, netns=HERE, has_host_end=has_host_end)
    assert asked in ([], [("veth1", 7)])
    return found


@pytest.mark.parametrize(
    "traces",
    [
        pytest.param((), id="no record"),
        pytest.param((OTHER,), id="no record of links: another program made them"),
        pytest.param((OTHER, OLD), id="one record is of this boot"),
        pytest.param((OTHER, OLD_LINKS), id="links of an earlier boot, made anew by another program"),
        pytest.param((ELSEWHERE,), id="links of another namespace"),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_what_nothing_proves_is_unknown(traces, there):
    assert verdict(*traces, there=there) == Verdict(state=State.UNKNOWN)


@pytest.mark.parametrize("traces", [(OLD,), (OLD, OLD_LINKS)])
@pytest.mark.parametrize("there", [True, False])
def test_nothing_outlives_a_boot(traces, there):
    assert verdict(*traces, there=there) == Verdict(state=State.LEAKED, proof="made in an earlier boot")


def test_a_host_end_that_is_gone_is_proof():
    gone = Verdict(state=State.LEAKED, proof="host end veth1 (index 7) is gone")
    assert verdict(OTHER, LINKS, there=False) == gone
    assert verdict(OTHER, LINKS, there=True) == Verdict(state=State.ATTACHED)
