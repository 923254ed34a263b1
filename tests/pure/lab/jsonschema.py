"""Whether a value is as a JSON Schema says: of its words those that ours uses, and a complaint about any other."""

import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_SAID = frozenset(("$schema", "title", "description", "examples"))  # for people and editors
# Each word: the type of values that it is about, and whether one is as the word wants it.
_WORDS: dict[str, tuple[type, Callable[[Any, Any], bool]]] = {
    "type": (object, lambda names, value: any(_is(value, name) for name in ([names] if type(names) is str else names))),
    "const": (object, lambda wanted, value: value == wanted),
    "enum": (object, lambda wanted, value: value in wanted),
    "anyOf": (object, lambda schemas, value: any(fits(each, value) for each in schemas)),
    "not": (object, lambda schema, value: not fits(schema, value)),
    "pattern": (str, lambda pattern, value: re.search(pattern, value) is not None),
    "minimum": (int, lambda least, value: value >= least),
    "maximum": (int, lambda most, value: value <= most),
    "items": (list, lambda schema, value: all(fits(schema, each) for each in value)),
    "minItems": (list, lambda least, value: len(value) >= least),
    "maxItems": (list, lambda most, value: len(value) <= most),
    "required": (dict, lambda names, value: set(names) <= value.keys()),
    "properties": (dict, lambda known, value: all(fits(known[key], value[key]) for key in known.keys() & value.keys())),
}


def fits(schema: Schema, value: object) -> bool:
    """Tell whether a value is as a schema says. `KeyError` for a word that is not known here."""
    if isinstance(value, dict) and schema.get("additionalProperties") is False and value.keys() - schema["properties"]:
        return False
    said = ((*_WORDS[word], wanted) for word, wanted in schema.items() if word not in _SAID | {"additionalProperties"})
    return all(not isinstance(value, kind) or is_so(wanted, value) for kind, is_so, wanted in said)


def _is(value: object, name: str) -> bool:
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])
