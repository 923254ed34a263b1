"""Values do what frozen dataclasses do; those are the oracle."""

import dataclasses
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.lease import LeaseAttrs
from weft.model.value import Value, field, fields_of, put_in, replace

T = TypeVar("T")


class Point(Value):
    """All that a field can be told, once."""

    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)
    key: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        put_in(self, "key", (self.x, self.y))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list)
    key: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.x, self.y))


class Placed(Value, kw_only=False):
    first: int
    second: int = 0


class Extended(Point):
    z: int = 9


class Box(Value, Generic[T]):
    holds: T


class Counted(Value, frozen=False):
    count: int = 0


class Empty(Value):
    """No fields."""


GIVEN = st.fixed_dictionaries(
    {"x": st.integers(0, 2)},
    optional={"y": st.integers(0, 2), "names": st.lists(st.sampled_from("ab"), max_size=2)},
)


@given(one=GIVEN, other=GIVEN)
def test_what_dataclasses_do(one: dict[str, Any], other: dict[str, Any]) -> None:
    ours, theirs = (Point(**one), Point(**other)), (Oracle(**one), Oracle(**other))
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])
    assert repr(ours[0]) == repr(theirs[0]).replace("Oracle", "Point")
    assert fields_of(ours[0]) == dataclasses.asdict(theirs[0])
    assert fields_of(replace(ours[0], **other)) == dataclasses.asdict(dataclasses.replace(theirs[0], **other))


@pytest.mark.parametrize("wrong", [{}, {"x": 1, "z": 2}])
def test_a_call_that_does_not_fit_is_refused(wrong):
    with pytest.raises(TypeError, match="argument"):
        Point(**wrong)
    with pytest.raises(TypeError, match=r"argument|no field 'z'"):
        replace(Point(x=1), **({"z": 2} | wrong))


def test_nothing_changes_a_value():
    with pytest.raises(AttributeError, match="immutable"):
        Point(x=1).x = 2  # type: ignore[misc]
    assert {Placed(1), Placed(1)} == {Placed(1)}


def test_fields_have_no_place_unless_the_class_says_so():
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]
    assert Placed(1, 2) == Placed(first=1, second=2)
    assert repr(Placed(1)) == "Placed(first=1, second=0)"


def test_nothing_else_can_be_put_into_a_value():
    assert not hasattr(Point(x=1), "__dict__")
    with pytest.raises(AttributeError):
        Point(x=1).other = 2  # type: ignore[attr-defined]


def test_values_of_two_classes_differ_and_each_value_has_its_own_list():
    assert Placed(1) != Counted(count=1)
    assert Placed(1) != 1
    assert Point(x=1).names is not Point(x=1).names
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_a_class_takes_over_the_fields_of_its_base():
    assert repr(Extended(x=1)) == "Extended(x=1, y=2, names=[], key=(1, 2), z=9)"
    assert Extended(x=1).key == (1, 2)
    assert Extended(x=1) != Point(x=1)


def test_a_generic_class_is_a_value_too():
    assert Box[int](holds=1) == Box(holds=1)


def test_what_may_change_has_no_hash():
    counted = Counted()
    counted.count += 1
    assert counted == Counted(count=1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counted)


def test_only_fields_with_a_place_match_by_place():
    match Placed(1, 2):
        case Placed(first, second):
            assert (first, second) == (1, 2)
    assert Point.__match_args__ == ()


def test_what_a_lease_says_has_a_hash_whatever_its_data_are():
    one, other = (LeaseAttrs(public_ip=None, backend="vxlan", data={"VNI": number}) for number in (1, 2))
    assert hash(one) == hash(other)
    assert len({one, other}) == 2
