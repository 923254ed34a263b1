"""What can be changed in a source file so that a test ought to notice.

Own code, because the libraries at hand change functions in the process of the tests alone (mutmut) or run one
command for every change (cosmic-ray): half of weft runs in daemons, plugins and a C client of their own, and the suite
takes ten minutes.

Operators: comparisons and their bounds, `and` and `or`, an operand left out, `not` left out, conditions negated,
numbers and flags, names and keys, arithmetic, a returned value, a call or an assignment made for its effect, `raise`,
`continue` and `break`, a keyword argument left out.

Left alone by rule, because no test should care: docstrings, annotations, text for people (whatever holds a space or a
backtick, and f-strings), arguments of loggers and of `Problem` but for its code, help of options, names of encodings,
`__repr__` and `__str__`, `__all__`, blocks for type checkers, `assert_never`, options of classes and dataclasses, how
long is waited and how much is read at a time (numbers with a point, `timeout=`, constants named SECONDS, BYTES or
CHUNK), and generated files.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_TEXT_FOR_PEOPLE: Final = frozenset({"Problem", "assert_never", "cast", "TypeVar", "echo", "secho", "warn", "print"})
_SHOWN: Final = frozenset({"help", "metavar", "show_default"})  # of options: text for people
_WAITED: Final = frozenset({"timeout", "backlog"})
_LIMITS: Final = re.compile(r"(SECONDS|BYTES|CHUNK)\Z")
_ENCODINGS: Final = frozenset({"utf-8", "ascii"})  # a name with a ~ behind means the same
_LOGGERS: Final = re.compile(r"(\A|\.)_?(log|logger|logging)\.\w+\Z")
_TYPES: Final = frozenset({"list", "dict", "set", "frozenset", "tuple", "type", "int", "str", "bytes", "float", "bool"})
_NEVER_RUN: Final = frozenset({"__repr__", "__str__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: in `path` (relative to the checkout) `text[start:end]` becomes `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    operator: str
    source: str  # the line that it begins in, stripped

    @property
    def change(self) -> str:
        """The change in a line: what the list of equivalents knows a mutant by, beside `source`."""
        return f"{_short(self.old)} -> {_short(self.new)}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.operator}: {self.change}"

    def apply(self, text: str) -> str:
        assert text[self.start : self.end] == self.old, f"{self}: the source has changed"
        return text[: self.start] + self.new + text[self.end :]


def mutants(path: str, text: str) -> list[Mutant]:
    """All single changes of a file, in the order of the source."""
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return begins[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node, operator, new in _Changes().of(ast.parse(text)):
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        source = lines[node.lineno - 1].strip()
        place = {"path": path, "line": node.lineno, "start": start, "end": end, "source": source}
        found.append(Mutant(**place, old=text[start:end], new=new, operator=operator))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.operator, mutant.new))


Change: TypeAlias = tuple[Any, str, str]  # a node of the tree, the operator, and the text to stand in its place


class _Changes:
    """The walk through a tree; stays out of what the rules leave alone."""

    def of(self, node: ast.AST) -> Iterator[Change]:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            yield from method(node)
        for child in self._children(node):
            yield from self.of(child)

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.JoinedStr) or _is_type(node) or _is_dunder(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in _NEVER_RUN:
                yield from (default for default in node.args.defaults + node.args.kw_defaults if default is not None)
                yield from _body(node)
        elif isinstance(node, ast.ClassDef | ast.Module):
            yield from _body(node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None and not _LIMITS.search(_name(node.target)):
                yield node.value
        elif isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            yield from node.orelse
        elif isinstance(node, ast.keyword) and node.arg in _SHOWN | _WAITED:
            return
        elif isinstance(node, ast.Call) and _for_people(node):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "code")
        else:
            yield from ast.iter_child_nodes(node)

    # --- Expressions

    def _compare(self, node: ast.Compare) -> Iterator[Change]:
        for number, op in enumerate(node.ops):
            ops = [*node.ops[:number], _COMPARED[type(op)](), *node.ops[number + 1 :]]
            yield node, "comparison", _text(ast.Compare(left=node.left, ops=ops, comparators=node.comparators))

    def _boolop(self, node: ast.BoolOp) -> Iterator[Change]:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, "and/or", _text(ast.BoolOp(op=other, values=node.values))
        for number in range(len(node.values)):
            values = [*node.values[:number], *node.values[number + 1 :]]
            left = values[0] if len(values) == 1 else ast.BoolOp(op=node.op, values=values)
            yield node, "operand", _text(left)

    def _unaryop(self, node: ast.UnaryOp) -> Iterator[Change]:
        if isinstance(node.op, ast.Not):
            yield node, "not", _text(node.operand)

    def _binop(self, node: ast.BinOp) -> Iterator[Change]:
        if type(node.op) in _COMPUTED and not any(map(_is_text, (node.left, node.right))) and not _is_type(node):
            op = _COMPUTED[type(node.op)]()
            yield node, "arithmetic", _text(ast.BinOp(left=node.left, op=op, right=node.right))

    def _constant(self, node: ast.Constant) -> Iterator[Change]:
        value = node.value
        if isinstance(value, bool):
            yield node, "flag", repr(not value)
        elif isinstance(value, int):
            yield node, "number", repr(value + 1)
            if value > 0:
                yield node, "number", repr(value - 1)
        elif isinstance(value, str) and value and not re.search(r"[\s`]", value) and value not in _ENCODINGS:
            yield node, "text", repr(value + "~")
        elif isinstance(value, bytes) and value:
            yield node, "text", repr(value + b"~")

    def _ifexp(self, node: ast.IfExp) -> Iterator[Change]:
        yield from _negated(node.test)

    def _comprehension(self, node: ast.comprehension) -> Iterator[Change]:
        for test in node.ifs:
            yield from _negated(test)

    def _call(self, node: ast.Call) -> Iterator[Change]:
        if _for_people(node):
            return
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in _SHOWN:
                left = [other for other in node.keywords if other is not keyword]
                yield node, "keyword", _text(ast.Call(func=node.func, args=node.args, keywords=left))

    # --- Statements

    def _if(self, node: ast.If) -> Iterator[Change]:
        if _name(node.test) != "TYPE_CHECKING":
            yield from _negated(node.test)

    def _while(self, node: ast.While) -> Iterator[Change]:
        yield from _negated(node.test)

    def _expr(self, node: ast.Expr) -> Iterator[Change]:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _for_people(call):
            yield node, "statement", "pass"

    def _assign(self, node: ast.Assign) -> Iterator[Change]:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            yield node, "statement", "pass"

    def _augassign(self, node: ast.AugAssign) -> Iterator[Change]:
        yield node, "statement", "pass"

    def _delete(self, node: ast.Delete) -> Iterator[Change]:
        yield node, "statement", "pass"

    def _raise(self, node: ast.Raise) -> Iterator[Change]:
        yield node, "raise", "pass"

    def _return(self, node: ast.Return) -> Iterator[Change]:
        if node.value is None:
            yield node, "return", "pass"
        elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield node, "return", "return None"

    def _continue(self, node: ast.Continue) -> Iterator[Change]:
        yield node, "loop", "break"

    def _break(self, node: ast.Break) -> Iterator[Change]:
        yield node, "loop", "continue"


def _negated(test: ast.expr) -> Iterator[Change]:
    """A condition and its opposite, where no other operator has it."""
    if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield test, "condition", _text(ast.UnaryOp(op=ast.Not(), operand=test))


def _body(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _text(node: ast.expr) -> str:
    """The source of an expression, to stand in place of any other."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Constant) else f"({text})"


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _for_people(node: ast.Call) -> bool:
    name = _name(node.func)
    return name.rpartition(".")[2] in _TEXT_FOR_PEOPLE or _LOGGERS.search(name) is not None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(node: ast.AST) -> bool:
    """Whether it names a type: `list[int]`, `Callable[[str], None]`, `Route | Address | None`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_type(node.left)
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    name = _name(node).rpartition(".")[2] if isinstance(node, ast.Name | ast.Attribute) else ""
    return name in _TYPES or (name[:1].isupper() and not name.isupper())


def _is_dunder(node: ast.AST) -> bool:
    """Whether it sets a name that Python itself reads, such as `__all__`."""
    return isinstance(node, ast.Assign) and any(_name(target).startswith("__") for target in node.targets)


def _short(text: str) -> str:
    return " ".join(text.split())
