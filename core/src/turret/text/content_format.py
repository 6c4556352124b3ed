"""Finds out whether a chat template takes message content as a string or as a list of parts.

Owns: that reading of a template's syntax tree. Knows nothing of messages.
"""

from __future__ import annotations

from enum import StrEnum

from jinja2 import nodes

__all__ = ["ContentFormat", "detect_content_format", "handles_strings"]


class ContentFormat(StrEnum):
    """How message content reaches the template."""

    AUTO = "auto"
    STRING = "string"
    OPENAI = "openai"


def detect_content_format(tree: nodes.Template) -> ContentFormat:
    """OPENAI when the template loops over some message's content, else STRING.

    Content is followed through assignments and macro arguments, so `{% set c = message.content %}{% for p in c %}`
    counts too.
    """
    names = _content_names(tree)
    loops = (loop.iter for loop in tree.find_all(nodes.For))
    return ContentFormat.OPENAI if any(_is_content(e, names) for e in loops) else ContentFormat.STRING


def handles_strings(tree: nodes.Template) -> bool:
    """True when the template asks whether content `is string`: then strings can stay strings."""
    names = _content_names(tree)
    return any(test.name == "string" and _is_content(test.node, names) for test in tree.find_all(nodes.Test))


def _content_names(tree: nodes.Template) -> set[str]:
    """Variables that hold content; found by repetition, since one may be assigned from another."""
    macros = {m.name: [a.name for a in m.args] for m in tree.find_all(nodes.Macro)}
    names: set[str] = set()
    while True:
        found = set(names)
        for assign in tree.find_all(nodes.Assign):
            if isinstance(assign.target, nodes.Name) and _is_content(assign.node, names):
                found.add(assign.target.name)
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in macros:
                pairs = zip(macros[call.node.name], call.args, strict=False)
                found.update(name for name, arg in pairs if _is_content(arg, names))
        if found == names:
            return names
        names = found


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """`x['content']`, `x.content`, `x.get('content')`, a variable that holds it, or a choice or filter of these."""
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Filter):
        return node.node is not None and _is_content(node.node, names)
    if isinstance(node, nodes.CondExpr):
        return _is_content(node.expr1, names) or (node.expr2 is not None and _is_content(node.expr2, names))
    if isinstance(node, (nodes.Or, nodes.And)):
        return _is_content(node.left, names) or _is_content(node.right, names)
    return _is_get(node)


def _is_get(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.Call) or not isinstance(node.node, nodes.Getattr) or node.node.attr != "get":
        return False
    return bool(node.args) and isinstance(node.args[0], nodes.Const) and node.args[0].value == "content"
