"""Which nodes of a lab reach each other: shapes, files, and what is cut for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.lab import topology
from weft.lab.commands.lifecycle import _topology
from weft.lab.files import labfile
from weft.lab.links import Cut
from weft.lab.spec import Lab, Overrides
from weft.model.errors import ConfigError

NAMES = ["a", "b", "c", "d"]


def both(one: str, other: str) -> set[Cut]:
    return {Cut(source=one, target=other), Cut(source=other, target=one)}


@pytest.mark.parametrize(
    "wanted, pairs",
    [
        ("full", ()),
        ("line", (("a", "b"), ("b", "c"), ("c", "d"))),
        ("ring", (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))),
        ([["b", "a", "c"], ["c", "d"], ["c", "d"]], (("b", "a"), ("b", "c"), ("c", "d"))),
    ],
)
def test_a_shape(wanted: topology.Wanted, pairs: tuple[topology.Pair, ...]):
    assert topology.pairs(wanted, NAMES) == pairs


def test_a_ring_of_two_is_a_line():
    assert topology.pairs("ring", NAMES[:2]) == (("a", "b"),)


@pytest.mark.parametrize("wanted", ["star", "partial", "partial:", "partial:x", "line:3"])
def test_what_is_no_shape(wanted: str):
    with pytest.raises(ValueError, match="a topology"):
        topology.pairs(wanted, NAMES)


@given(st.integers(0, 10_000), st.integers(1, 30))
def test_a_partial_network_is_in_one_piece_and_the_same_for_each_seed(seed: int, count: int):
    names = [f"node{number}" for number in range(1, count + 1)]
    pairs = topology.pairs(f"partial:{seed}", names)
    assert not list(topology.problems(pairs, names, ""))
    assert pairs == topology.pairs(f"partial:{seed}", names)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)


def test_what_is_cut_for_a_line():
    assert topology.cuts(topology.pairs("line", NAMES), NAMES) == both("a", "c") | both("a", "d") | both("b", "d")
    assert not topology.cuts((), NAMES)


def test_a_file_of_nodes_and_those_that_each_reaches():
    assert topology.read("# two\na b c  # the first\n\nc d\n") == [["a", "b", "c"], ["c", "d"]]


def read(text: str, **options: topology.Wanted) -> Lab:
    return labfile.read(text, "x.yaml", over=Overrides(**options))


def test_a_lab_file_has_a_shape_or_pairs_and_an_option_takes_their_place():
    line = (("node1", "node2"), ("node2", "node3"))
    assert read("topology: line").topology == line
    assert read("topology: [[node1, node2], [node2, node3]]").topology == line
    assert read("topology: ring", topology="line").topology == line
    assert read("nodes: 3", topology=[["node1", "node2"], ["node2", "node3"]]).topology == line
    assert not read("topology: full").apart
    assert read("topology: line").apart == both("node1", "node3")


def test_options_alone_have_one_too():
    made = labfile.regular(
        name="x", backend="mesh", families=(4,), nft=False, nodes=3, pods=0, store="mesh", shape="line"
    )
    assert made.apart == both("node1", "node3")
    with pytest.raises(ConfigError, match="a topology with node9; expected nodes of the lab: node1, node2"):
        labfile.regular(
            name="x", backend="vxlan", families=(4,), nft=False, nodes=2, pods=0, shape=[["node1", "node9"]]
        )


def test_a_mesh_may_have_a_password():
    assert labfile.read("store: mesh\npassword: true", "x.yaml").password
    assert labfile.read("store: mesh", "x.yaml", over=Overrides(password=True)).password
    assert not labfile.read("store: mesh\npassword: false", "x.yaml").password
    with pytest.raises(ConfigError, match="a password with store etcd; expected store mesh"):
        labfile.read("password: true", "x.yaml")


def test_an_option_is_a_shape_or_a_file(tmp_path):
    assert _topology("partial:7") == "partial:7"
    file = tmp_path / "pairs"
    file.write_text("node1 node2\n")
    assert _topology(str(file)) == [["node1", "node2"]]
    with pytest.raises(ConfigError, match="--topology lyne: no shape, and no file that can be read"):
        _topology("lyne")
