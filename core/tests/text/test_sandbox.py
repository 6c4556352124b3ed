"""Hostile chat templates: they end quickly, with an error that blames them, and read nothing of Python."""

from __future__ import annotations

import resource
import threading
import time

import pytest
from jinja2 import Environment

from turret.errors import ConfigError, RequestError
from turret.text import ChatOptions, ChatTemplate

MESSAGES = [{"role": "user", "content": "abc " * 500}]


def render(template: str, **kwargs: object) -> str:
    return ChatTemplate(template, {}).render(MESSAGES, ChatOptions(kwargs=dict(kwargs)))


def doubled(start: str, expression: str, shown: str = "{{ x }}") -> str:
    return "{% set x = " + start + " %}" + ("{% set x = " + expression + " %}") * 40 + shown


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "loops": LOOP,
    "loops over text": "{% set c = 'abcd' * 500 %}"
    "{% for a in c %}{% for b in c %}{% for d in c %}{% endfor %}{% endfor %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "big range": "{{ range(10**9) | list }}",
    "output": "{% for a in range(99999) %}{{ messages[0].content }}{% endfor %}",
    "repeat text": "{{ 'a' * 10**9 }}",
    "repeat list": "{{ [1] * 10**9 }}",
    "repeat reversed": "{{ 10**9 * 'a' }}",
    "power": "{{ 10 ** (10 ** 8) }}",
    "double with ~": doubled("'aaaaaaaa'", "x ~ x"),
    "double with +": doubled("'aaaaaaaa'", "x + x"),
    "double lists with +": doubled("[1]", "x + x"),
    "square": doubled("9", "x * x"),
    "nest and print": doubled("[1]", "[x, x]"),
    "nest and tojson": doubled("[1]", "[x, x]", "{{ x | tojson }}"),
    "nest and string": doubled("[1]", "[x, x]", "{{ x | string | length }}"),
    "nest and concat": doubled("[1]", "[x, x]", "{{ 'a' ~ x }}"),
    "nest and join": doubled("['a']", "[x, x]", "{{ x | join }}"),
    "nest and format": doubled("[1]", "[x, x]", "{{ '%s' % (x,) }}"),
    "nest dicts": doubled("{'a': 1}", "{'a': x, 'b': x}"),
    "nest and print a namespace": "{% set ns = namespace(x=[1]) %}{{ ns }}",
    "nest and print items": doubled("{'a': 1}", "{'a': x, 'b': x}", "{{ x.items() }}"),
    "nest and raise": doubled("[1]", "[x, x]", "{{ raise_exception(x) }}"),
    "nest and upper": doubled("[1]", "[x, x]", "{{ x | upper }}"),
    "nest and escape": doubled("[1]", "[x, x]", "{{ x | e }}"),
    "nest and compare": "{% set y = [1] %}" + doubled("[1]", "[x, x]", "")
    + "{% set y = [y, y] %}" * 40 + "{{ x == y }}",
    "nest by repetition": "{% set y = [1] * 2 %}" + doubled("[1]", "[x] * 2", "{{ x == y }}"),
    "nest by dict": doubled("1", "dict(a=x, b=x)", "{{ x == 1 }}"),
    "nest by varargs": "{% macro f(n) %}{{ f(n - 1, varargs, varargs) if n else varargs == 1 }}{% endmacro %}"
    "{{ f(60, 1) }}",
    "nest by batch": doubled("1", "[1] | batch(3, x) | list", "{{ x == 1 }}"),
    "deep": "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "replace": "{% set x = messages[0].content * 100 %}{{ x | replace('a', x) }}",
    "replace method": "{% set x = messages[0].content * 100 %}{{ x.replace('a', x) }}",
    "replace nothing": "{% set x = messages[0].content * 100 %}{{ x.replace('', x) }}",
    "join": "{{ (messages[0].content * 1000) | join(messages[0].content * 1000) }}",
    "join method": "{{ (messages[0].content * 1000).join(messages[0].content * 1000) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "center": "{{ 'a'.center(10**9) }}",
    "expandtabs": "{{ ('\t' * 100000).expandtabs(10**6) }}",
    "indent": "{{ ('a\n' * 100000) | indent(10**5) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "format": "{{ '{:>999999999}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 10**9) }}",
    "format filter": "{{ '%999999999d' | format(1) }}",
    "format map": "{{ '{a:>999999999}'.format_map({'a': 1}) }}",
    "batch": "{{ [1] | batch(10**9, 0) | list }}",
    "slice": "{{ [1] | slice(10**9, 0) | list }}",
    "tojson indent": "{{ [1] | tojson(indent=10**9) }}",
    "strftime": "{{ strftime_now('%c' * 10**6) }}",
    "long number": "{{ 10 ** 5000 }}",
}
ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['os'] }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.__class__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ messages | attr('__class__') }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ cycler.__init__ }}{{ lipsum.__globals__ }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set x = messages.append(1) %}",
    "{% set x = messages[0].update(role='x') %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_quickly_and_small(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(RequestError, match=r"template"):
        render(HOSTILE[name])
    assert time.process_time() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


@pytest.mark.parametrize("template", ESCAPES)
def test_nothing_of_python_is_reached(template: str) -> None:
    try:
        text = render(template)
    except (RequestError, ConfigError):
        return
    assert text == ""


def test_loops_mean_what_they_mean_without_guards() -> None:
    template = (
        "{% for x in [3, 1, 2] | sort %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ '' if loop.last else ',' }}"
        "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex }};{% else %}none{% endfor %}"
        "{% for k, v in {'a': 1}.items() %}{{ k ~ v ~ none ~ 1.5 }}{% endfor %}"
        "{% for x in [] %}x{% else %}empty{% endfor %}{% for x in missing %}x{% else %}undefined{% endfor %}"
        "{% for x in [1, 2, 3, 4] if x is even %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        "{% for n in [[1, [2]]] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}"
    )
    plain = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    assert render(template) == plain.from_string(template).render()


def test_budgets_of_parallel_renderings_are_apart() -> None:
    """Three threads spend two million steps each; five million are allowed, but to each of them."""
    template = ChatTemplate("{% for a in range(2000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}done", {})
    outcomes: list[str] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(template.render(MESSAGES, ChatOptions()))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["done"] * 3


@pytest.mark.parametrize(
    "source", ["{{ " + "(" * 5000 + ")" * 5000 + " }}", "{% if x %}" * 200 + "{% endif %}" * 200,
               "{% for a in x %}" * 50 + "{% endfor %}" * 50, "{{ " + "-" * 3000 + "1 }}"]
)  # fmt: skip
def test_sources_too_deep_to_compile_are_refused_or_run(source: str) -> None:
    try:
        render(source)
    except (ConfigError, RequestError) as exc:
        assert "template" in str(exc)
