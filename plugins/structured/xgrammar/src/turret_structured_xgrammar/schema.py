"""Which schemas xgrammar can be held to.

Owns: `complaint`, a look at a spec that finds what xgrammar would ignore or bend. Knows nothing of its compiler.

xgrammar reads a schema keyword by keyword: what it does not know it warns of and leaves out, `oneOf` it takes for
`anyOf`, and keywords beside a `$ref`, an `enum` or an `anyOf` it does not look at. Here such schemas are refused, so
that what remains means what it says. Tests walk through each keyword's grammar at random and validate what comes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from turret.contracts import GrammarSpec

__all__ = ["complaint", "prepared"]

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "deprecated", "readOnly", "writeOnly"})
CONTAINERS = frozenset({"$defs", "definitions"})
"""Places where schemas are kept for `$ref`."""
VALUES = frozenset({"const", "enum", "default", "examples"})
"""Members of a schema that hold no schemas."""
OF_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
FORMATS = frozenset({"date", "time", "date-time", "uuid", "email"})
"""Held to in shape: a date may be the 31st of February."""
COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
MOST = 4096
"""The largest bound on a length or a number of items: each is written out in the grammar."""
MOST_LENGTH = 256
"""The largest bound on the length of a string: the library takes seconds for thousands."""
MOST_NUMBER = 1 << 53
SAFE_ESCAPES = frozenset("dDwWsSnrtfv.\\/+*?()[]{}|^$-\"'@#%&=:;,<>!~_ ")


def complaint(spec: GrammarSpec) -> str | None:
    """Why xgrammar cannot be held to a spec, in one sentence; None if it can, as far as a look tells."""
    if spec.whitespace_pattern is not None:
        return "whitespace_pattern is not supported"
    if spec.kind == "regex":
        return _pattern(spec.text)
    if spec.kind == "structural_tag" and (found := next(_patterns(json.loads(spec.text)), None)) is not None:
        return found
    try:
        for schema in _schemas(spec):
            found = next(_Walk(schema).faults(schema, "#", frozenset()), None)
            if found is not None:
                return found
    except RecursionError:
        return "the schema is nested too deeply"
    return None


def _schemas(spec: GrammarSpec) -> Iterator[Any]:
    """The JSON schemas in a spec: the one of `json`, those inside a structural tag."""
    if spec.kind == "json":
        yield json.loads(spec.text)
    elif spec.kind == "structural_tag":
        yield from _schemas_in(json.loads(spec.text))


def _schemas_in(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "json_schema":
                yield value
            else:
                yield from _schemas_in(value)
    elif isinstance(node, list):
        for item in node:
            yield from _schemas_in(item)


def _patterns(node: Any) -> Iterator[str]:
    """What is wrong with regular expressions inside a structural tag."""
    if isinstance(node, dict):
        if node.get("type") == "regex" and (reason := _pattern(node.get("pattern"))) is not None:
            yield reason
        for name, value in node.items():
            if name != "json_schema":
                yield from _patterns(value)
    elif isinstance(node, list):
        for item in node:
            yield from _patterns(item)


def prepared(node: Any) -> Any:
    """A schema, or a structural tag with schemas, as the library must be told: bounds of a length as an expression,
    since the library's own let raw control characters into strings."""
    if isinstance(node, list):
        return [prepared(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: value if name in VALUES else prepared(value) for name, value in node.items()}
    named = made.get("type")
    types = named if isinstance(named, list) else [named]
    if "string" not in types or not ("minLength" in made or "maxLength" in made):
        return made
    least, most = made.pop("minLength", 0), made.pop("maxLength", "")
    made["pattern"] = f"^.{{{least},{most}}}$"
    return made


class _Walk:
    """A schema and what `$ref` finds in it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: set[str] = set()

    def faults(self, node: Any, at: str, through: frozenset[str]) -> Iterator[str]:
        """`through` are the references followed since the last character that the answer must hold."""
        if node is True or node == {}:
            return
        if not isinstance(node, dict):
            yield f"{at}: {'nothing matches false' if node is False else 'a schema is an object or a boolean'}"
            return
        keywords = {name for name in node if name not in ANNOTATIONS and name not in CONTAINERS}
        if at == "#":
            keywords.discard("$id")  # a name; below the root it would change what references mean
        for name in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf"):
            if name in keywords:
                yield from self._alone(node, name, keywords, at, through)
                return
        yield from self._typed(node, keywords, at)

    def _alone(self, node: Any, name: str, keywords: set[str], at: str, through: frozenset[str]) -> Iterator[str]:
        """Keywords that xgrammar looks at first, and then at nothing else."""
        others = keywords - {name} - ({"type"} if name in ("const", "enum") else set())
        if others:
            yield f"{at}: {', '.join(sorted(others))} beside {name} is not supported"
        elif name == "$ref":
            yield from self._reference(node[name], at, through)
        elif name in ("const", "enum"):
            yield from _values(node, [node[name]] if name == "const" else node[name], at)
        else:
            yield from self._branches(node[name], name, at, through)

    def _reference(self, ref: Any, at: str, through: frozenset[str]) -> Iterator[str]:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            yield f"{at}: $ref {ref!r} does not point into the schema itself"
            return
        if ref in through:
            yield f"{at}: $ref {ref} leads back to itself with nothing in between"
            return
        found = self._root
        for part in ref.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found or "%" in part:
                yield f"{at}: $ref {ref} points nowhere"
                return
            found = found[part]
        if ref not in self._seen or through:
            self._seen.add(ref)
            yield from self.faults(found, ref, through | {ref})

    def _branches(self, branches: Any, name: str, at: str, through: frozenset[str]) -> Iterator[str]:
        if not isinstance(branches, list) or not branches:
            yield f"{at}: {name} must be a list of schemas"
            return
        if name == "allOf" and len(branches) > 1:
            yield f"{at}: allOf of several schemas is not supported"
        if name == "oneOf" and not _disjoint(branches):
            yield f"{at}: oneOf is supported only where the types of its schemas tell them apart"
        for number, branch in enumerate(branches):
            yield from self.faults(branch, f"{at}/{name}/{number}", through)

    def _typed(self, node: Any, keywords: set[str], at: str) -> Iterator[str]:
        named = node.get("type")
        if named is None:
            yield f"{at}: {', '.join(sorted(keywords))} without a type is not supported"
            return
        types = named if isinstance(named, list) else [named]
        if not types or not all(isinstance(one, str) and one in OF_TYPE for one in types):
            yield f"{at}: type is {named!r}"
            return
        unknown = keywords - {"type"} - frozenset().union(*(OF_TYPE[one] for one in types))
        if unknown:
            yield f"{at}: {', '.join(sorted(unknown))} is not supported for type {named}"
            return
        for name in COUNTS:
            if name in node and not (isinstance(node[name], int) and 0 <= node[name] <= MOST):
                yield f"{at}: {name} must be between 0 and {MOST}"
        if "string" in types:
            yield from _string(node, at)
        if "integer" in types or "number" in types:
            yield from _number(node, types, at)
        if "array" in types:
            yield from self._array(node, at)
        if "object" in types:
            yield from self._object(node, at)

    def _array(self, node: Any, at: str) -> Iterator[str]:
        first = node.get("prefixItems", [])
        if not isinstance(first, list):
            yield f"{at}: prefixItems must be a list"
            return
        if first and ("minItems" in node or "maxItems" in node):
            yield f"{at}: minItems and maxItems beside prefixItems are not supported"
        for number, item in enumerate(first):
            yield from self.faults(item, f"{at}/prefixItems/{number}", frozenset())
        if node.get("items", True) is not False:
            yield from self.faults(node.get("items", True), f"{at}/items", frozenset())
        elif not first and node.get("minItems", 0) > 0:
            yield f"{at}: minItems asks for items that items forbids"
        if node.get("minItems", 0) > node.get("maxItems", MOST):
            yield f"{at}: minItems is more than maxItems"

    def _object(self, node: Any, at: str) -> Iterator[str]:
        properties, required = node.get("properties", {}), node.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            yield f"{at}: properties must be an object and required a list"
            return
        missing = [name for name in required if name not in properties]
        if missing:
            yield f"{at}: required names {missing[0]!r}, which properties does not have"
        further = node.get("additionalProperties", False)
        if properties and further is not False:
            # A further property may be called like a named one, and then the last of the two counts.
            yield f"{at}: additionalProperties beside properties is not supported"
        for name, value in properties.items():
            if value is False:
                yield f"{at}/properties/{name}: nothing matches false"
            yield from self.faults(value, f"{at}/properties/{name}", frozenset())
        if further is not False:
            yield from self.faults(further, f"{at}/additionalProperties", frozenset())


def _string(node: Any, at: str) -> Iterator[str]:
    given = [name for name in ("pattern", "format") if name in node]
    lengths = "minLength" in node or "maxLength" in node
    if len(given) + lengths > 1:
        yield f"{at}: pattern, format and bounds of the length are not supported together"
    if "pattern" in node and (reason := _pattern(node["pattern"]) or _unquotable(node["pattern"])) is not None:
        yield f"{at}: {reason}"
    if "format" in node and node["format"] not in FORMATS:
        yield f"{at}: format {node['format']!r} is not supported"
    if node.get("minLength", 0) > node.get("maxLength", MOST):
        yield f"{at}: minLength is more than maxLength"
    if max(node.get("minLength", 0), node.get("maxLength", 0)) > MOST_LENGTH:
        yield f"{at}: bounds of a length above {MOST_LENGTH} are not supported"


def _number(node: Any, types: list[str], at: str) -> Iterator[str]:
    bounds = [name for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if name in node]
    for name in bounds:
        value = node[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MOST_NUMBER:
            yield f"{at}: {name} must be a number of at most 2**53"
    if bounds and "number" in types:
        yield f"{at}: bounds of numbers that are no integers are not supported"
    if ("minimum" in node and "exclusiveMinimum" in node) or ("maximum" in node and "exclusiveMaximum" in node):
        yield f"{at}: a bound and its exclusive form together are not supported"


def _values(node: Any, values: Any, at: str) -> Iterator[str]:
    if not isinstance(values, list) or not values:
        yield f"{at}: enum must be a list with at least one value"
        return
    named = node.get("type")
    types = named if isinstance(named, list) else [named]
    if named is not None and not all(any(_is(value, one) for one in types) for value in values):
        yield f"{at}: a value of enum or const is not of type {named}"


def _is(value: Any, name: Any) -> bool:
    kinds: Mapping[str, tuple[type, ...]] = {
        "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
        "array": (list,), "object": (dict,),
    }  # fmt: skip
    fits = isinstance(value, kinds.get(name, ()))
    return fits and (name == "boolean" or not isinstance(value, bool))


def _disjoint(branches: list[Any]) -> bool:
    """Whether the types of schemas tell them apart."""
    seen: set[Any] = set()
    for branch in branches:
        named = branch.get("type") if isinstance(branch, dict) else None
        several: list[Any] = named if isinstance(named, list) else [named]
        types = {"number" if one == "integer" else one for one in several}
        if None in types or types & seen:
            return False
        seen |= types
    return True


def _pattern(text: Any) -> str | None:
    """Why a regular expression is none that xgrammar reads as everybody does."""
    if not isinstance(text, str):
        return "a pattern must be a string"
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return f"not a regular expression: {error}"
    if re.search(r"\(\?(?!:)", text):
        return "look-around, flags and named groups are not supported in regular expressions"
    for found in re.finditer(r"\\(.)", text, re.DOTALL):
        if found[1] not in SAFE_ESCAPES and not found[0].startswith(("\\x", "\\u")):
            return f"the escape {found[0]} is not supported in regular expressions"
    for low, high in re.findall(r"\{(\d+)(?:,(\d*))?\}", text):
        if max(int(low), int(high or 0)) > MOST:
            return f"a repetition may be up to {MOST}"
    return None


def _unquotable(text: str) -> str | None:
    """Why the expression cannot stand inside a JSON string: what must be escaped there the library writes as it is."""
    if '"' in text or re.search(r"\\[nrtfvxu\\]", text):
        return "quotes, backslashes and escapes of characters are not supported in a schema's pattern"
    return None
