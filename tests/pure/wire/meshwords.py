"""Any message of a mesh that keeps to the limits, made from the types alone."""

from functools import singledispatch
from typing import Any

from hypothesis import strategies as st
from msgspec import NODEFAULT, inspect, msgpack

from weft.model.mesh.messages import Hello, Message
from weft.model.mesh.records import Member, Token

_FEW = 4  # of long lists; their limits are tested at the edge
_FURTHER = st.one_of(st.none(), st.text(max_size=9), st.lists(st.integers(0, 300))).map(msgpack.encode)


def messages() -> st.SearchStrategy[Any]:
    return _of(inspect.type_info(Message))


def hellos() -> st.SearchStrategy[Hello]:
    return _of(inspect.type_info(Hello))


def members() -> st.SearchStrategy[Member]:
    return _of(inspect.type_info(Member))


@singledispatch
def _of(kind: Any) -> st.SearchStrategy[Any]:
    raise NotImplementedError(kind)


@_of.register
def _(kind: inspect.UnionType):
    return st.one_of(*map(_of, kind.types))


@_of.register
def _(kind: inspect.StructType):
    parts = {each.name: _of(each.type) for each in kind.fields}
    for each in kind.fields:
        if each.default is not NODEFAULT:
            parts[each.name] |= st.just(each.default)
    if kind.cls is Member:
        parts["further"] = st.lists(_FURTHER, max_size=_FEW).map(tuple)
    made = st.builds(kind.cls, **parts)
    return made.filter(lambda token: token.start < token.stop) if kind.cls is Token else made


@_of.register
def _(kind: inspect.VarTupleType):
    least = kind.min_length or 0
    return st.lists(_of(kind.item_type), min_size=least, max_size=max(least, _FEW)).map(tuple)


@_of.register
def _(kind: inspect.TupleType):
    return st.tuples(*map(_of, kind.item_types))


@_of.register
def _(kind: inspect.BytesType):
    return st.binary(min_size=kind.min_length or 0, max_size=kind.max_length)


@_of.register
def _(kind: inspect.IntType):
    most = (1 << 64) - 1 if kind.le is None else kind.le
    return st.integers(kind.ge, most if kind.lt is None else kind.lt - 1)


@_of.register
def _(kind: inspect.StrType):
    if kind.pattern is None:
        return st.text(max_size=kind.max_length)
    return st.from_regex(kind.pattern, fullmatch=True).filter(lambda text: len(text) <= kind.max_length)


@_of.register
def _(kind: inspect.BoolType):
    return st.booleans()


@_of.register
def _(kind: inspect.NoneType):
    return st.none()
