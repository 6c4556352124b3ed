"""The Jinja environment that chat templates run in: sandboxed, and bounded in time, steps and memory.

Owns: what a template may do. Knows nothing of messages. Templates come from model repositories and, if the operator
allows it, from clients, so a template must not read Python's insides, loop for ever or build gigabytes.

jinja2's immutable sandbox closes the first hole. For the others every loop, call, attribute, concatenation and
operator that can grow a value passes through a `Budget`: loops and concatenations are rewritten in the syntax tree to
go through it, operators and calls are intercepted by the sandbox's own hooks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from turret.text.growth import check_call, check_filter, check_operator, check_printed, check_size

__all__ = ["Budget", "ChatEnvironment", "Limits"]

_DROPPED_FILTERS = ("center", "filesizeformat", "pprint", "random", "urlize", "wordwrap", "xmlattr", "forceescape")
_DROPPED_TESTS = ("lower", "upper")  # they print what they test
_DROPPED_GLOBALS = ("lipsum", "cycler", "joiner")


class Limits:
    """Bounds of one rendering, far above what a real template needs: seconds of CPU time, steps, characters."""

    SECONDS = 2.0
    STEPS = 5_000_000
    CHARACTERS = 32_000_000
    SOURCE = 1_000_000


class Budget:
    """What one rendering may still spend."""

    __slots__ = ("_deadline", "_steps")

    def __init__(self) -> None:
        self._steps = Limits.STEPS
        self._deadline = time.thread_time() + Limits.SECONDS

    def spend(self, steps: int = 1) -> None:
        """Count work; raises SecurityError when there was too much of it or it took too long."""
        before = self._steps
        self._steps = before - steps
        if self._steps < 0:
            raise SecurityError(f"the template ran for more than {Limits.STEPS} steps")
        # The clock is read once per 256 steps: reading it each time would cost more than the steps.
        if before >> 8 != self._steps >> 8 and time.thread_time() > self._deadline:
            raise SecurityError(f"the template ran for more than {Limits.SECONDS:g} seconds")


class _Guarded(NodeTransformer):
    """Sends loops, `~` and containers made of variables through the environment's guards."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _call("guard_iter", [node.iter], node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _call("guard_concat", node.nodes, node.lineno)


    def visit_List(self, node: nodes.List) -> nodes.Expr:
        return self._made(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        return self._made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return self._made(node) if node.ctx == "load" else node

    def _made(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        constant = next(node.find_all((nodes.Name, nodes.Call, nodes.Filter)), None) is None
        return node if constant else _call("guard_made", [node], node.lineno)


def _call(name: str, args: Sequence[nodes.Node], lineno: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)
    call.set_lineno(lineno, override=True)
    return call


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote, for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(lineno)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """jinja2 as chat templates expect it: transformers' settings, filters and functions, and the guards."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self._budget: ContextVar[Budget | None] = ContextVar("turret_template_budget", default=None)
        for name in _DROPPED_FILTERS:
            self.filters.pop(name, None)
        for name in _DROPPED_GLOBALS:
            self.globals.pop(name, None)
        for name in _DROPPED_TESTS:
            self.tests.pop(name, None)
        self.filters.update({name: check_filter(name, function) for name, function in self.filters.items()})
        self.filters["tojson"] = _tojson
        self.globals.update(
            raise_exception=_raise_exception, strftime_now=_strftime_now, namespace=_SafeNamespace, dict=_SafeDict()
        )
        self.finalize = check_printed

    def rendering(self) -> Budget:
        """A fresh budget, in force in this thread or task until the next one."""
        budget = Budget()
        self._budget.set(budget)
        return budget

    def plain_tree(self, source: str) -> nodes.Template:
        """The template's own syntax tree, without guards, for those who want to read it."""
        return super()._parse(source, None, None)

    def guard_iter(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """`iterable`, one step of the budget per item."""
        budget = self._budget.get()
        for item in iterable:
            if budget is not None:
                budget.spend()
            yield item

    def guard_concat(self, *parts: Any) -> str:
        """The `~` operator."""
        texts = [str(check_printed(p)) for p in parts]
        self._spend(1 + sum(map(len, texts)) // 64)
        return str(check_size("".join(texts)))

    def guard_made(self, value: Any) -> Any:
        """A list, tuple or dict that the template has just made."""
        self._spend(1)
        return check_size(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._spend(1)
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self._spend(1)
        check_call(__obj, args, kwargs)
        if isinstance(__obj, (Macro, _SafeDict)):
            check_size([*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self._spend(1)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self._spend(1)
        return super().getitem(obj, argument)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        guarded: nodes.Template = _Guarded().visit(tree)
        return guarded

    def _spend(self, steps: int) -> None:
        budget = self._budget.get()
        if budget is not None:
            budget.spend(steps)


class _SafeNamespace(Namespace):
    """jinja2's namespace without underscore names, which could shadow Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace attribute must not begin with an underscore: {name!r}")


class _SafeDict:
    """`dict(...)` for templates, without the class itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(*args, **kwargs)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(check_printed(message)))


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 200:
        raise SecurityError("a date format of more than 200 characters")
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' filter writes it: no HTML escapes, non-ASCII kept, key order kept."""
    if isinstance(indent, int) and not 0 <= indent <= 16:
        raise SecurityError(f"tojson with an indent of {indent}")
    check_printed(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

