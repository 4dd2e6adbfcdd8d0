"""Templates filled without Jinja: the same bytes as Jinja's, or Jinja is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

import tilewright
from tilewright import packaged
from tilewright.arch import all_archs
from tilewright.backends import instance
from tilewright.backends.base import kernels_of
from tilewright.backends.plain_templates import Template, Unfilled
from tilewright.ops import op, op_names

VALUES: dict[str, Any] = {
    "name": "some",
    "s": SimpleNamespace(layout="rcr", num_d=2, stage="dot", none=None, words=("a", "b")),
    "table": {"class": "x", "items_": 3},
    "config": {"tile": 64, "edge": True},
    "empty": {},
    "on": True,
}
FILLED = [
    "plain text\n",
    "{{ name }}\n{{ s.num_d }}{{s.none}}{{ on }}\n",
    "{{ table.class }} {{ s.layout[0] }} {{ s.words[1] }} {{ s.stage.capitalize() }} {{ s.stage|capitalize }}",
    "{{ 'yes' if s.layout[0] == 'r' else 'no' }}{{ \"a\" if on else 'b' if s else 3 }}",
    "{% for key, value in config.items() %}\n  {{ key }} = {{ value }};\n{% endfor %}\nend\n",
    "{% for key, value in config.items() %}{{ name }}{{ key }} {% endfor %})\n",
    "{% for name in s.words %}{{ name }}{% endfor %}{{ name }}",
    "{% for one in empty %}{{ one }}{% else %}, nullptr{% endfor %}\n\n",
    "{% if empty %}\na\n{% else %}\nb\n{% endif %}\nc",
    "{% if on %}\n#if\n{% if empty %}{% endif %}\n{% endif %}\n",
    "{% for field, on in ((\"a\", s.num_d), ('b', s.none),) %}\n{{ field|capitalize }}={{ on }}\n{% endfor %}{{ on }}",
    "{{ (name) }}{{ name == 'some' }}",
    "{% for a in s.words %}{{ a }}{{ ';' if loop.last else ', ' }}{% endfor %}",
    "{% for a in s.words %}{% for b in s.words %}{{ loop.first }}{% endfor %}{{ loop.first }}{% endfor %}",
    "{% for a in s.words %}{% for b in empty %}{% else %}{{ loop.last }}{% endfor %}{% endfor %}",
    "{% for key, value in config.items() %}{% if loop.first %}{{ key }}{% endif %}{% endfor %}",
    "{ not a tag } {} %} }}\n",
]
ASKED = [
    "{# a comment #}",
    "{%- if on %}x{% endif %}",
    "{% if on -%} x{% endif %}",
    "{{- name }}",
    "{% if not on %}x{% endif %}",
    "{% if on %}x{% elif empty %}y{% endif %}",
    "{% for a in s.words if a %}{{ a }}{% endfor %}",
    "{% for a in s.words %}{{ loop.index }}{% endfor %}",
    "{% for a in s.words %}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for a in s.words %}{{ loop }}{% endfor %}",
    "{% set x = 1 %}{{ x }}",
    "{% raw %}{{ name }}{% endraw %}",
    "{{ name|upper }}",
    "{{ 1.5 }}{{ -1 }}{{ name + name }}",
    "{{ 'a\\nb' }}",
    "{{ range(3) }}",
    "{{ s.layout[:2] }}",
    "{{ true }}",
    "a\r\nb",
]


def by_jinja(text: str, values: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    return environment.from_string(text).render(values)


@pytest.mark.parametrize("text", FILLED)
def test_what_is_filled_is_what_jinja_makes_of_it(text: str) -> None:
    assert Template(text).render(VALUES) == by_jinja(text, VALUES)


@pytest.mark.parametrize("text", ASKED)
def test_what_is_none_of_the_part_is_left_to_jinja(text: str) -> None:
    by_jinja(text, VALUES)  # it is a template
    with pytest.raises(Unfilled):
        Template(text)


@pytest.mark.parametrize("text", ["{% if on %}", "{% endfor %}", "{{ name", "{{ }}", "{% for a in %}{% endfor %}"])
def test_what_is_no_template_is_left_to_jinja(text: str) -> None:
    with pytest.raises(Unfilled):
        Template(text)
    with pytest.raises(jinja2.TemplateSyntaxError):
        by_jinja(text, VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "{{ missing }}",
        "{{ loop.last }}",
        "{{ s.missing }}",
        "{{ s.words[7] }}",
        "{{ name() }}",
        "{% for a, b in s.words %}{% endfor %}",
    ],
)
def test_what_goes_wrong_is_left_to_jinja(text: str) -> None:
    template = Template(text)
    with pytest.raises(Unfilled):
        template.render(VALUES)
    with pytest.raises(Exception):  # noqa: B017, PT011  whatever Jinja says of it
        by_jinja(text, VALUES)


def specs() -> list[Any]:
    """Of every op and arch some kernels, over all its pool."""
    some = []
    for name in op_names():
        for arch in all_archs():
            candidates = list(op(name).proposals("default", arch))
            some += candidates[:: max(1, len(candidates) // 12)]
    return some


def test_every_source_is_byte_for_byte_that_of_jinja() -> None:
    """Sources are in keys of the store: a byte that differs compiles everything anew, or takes the wrong kernel."""
    plain, used = set(), set()
    for spec in specs():
        kernels = kernels_of(all_archs()[spec.arch].backend, spec)
        used.add(kernels.template)
        template = instance._plain(*kernels.template)
        if template is None:
            continue
        plain.add(kernels.template)
        whole = instance.text_of(spec, kernels.template, kernels.context(spec))
        jinjas = instance._template(*kernels.template)
        usual = {"name": spec.name, "manifest": spec.to_json(), "space": f"tw_{spec.digest[:16]}",
                 "s": spec.signature, "h": spec.schedule}  # fmt: skip
        assert whole == jinjas.render(usual | dict(kernels.context(spec))), spec.name
    assert plain == {place for place in used if place[0].startswith("tilewright.")}


def test_no_template_that_ships_waits_for_jinja() -> None:
    """One that leaves the part costs every first call of its kernels the import of Jinja, and says nothing."""
    package = Path(tilewright.__file__).parent
    left = {}
    for path in sorted(package.rglob("*.jinja")):
        try:
            Template(path.read_text(encoding="utf-8"))
        except Unfilled as error:
            left[path.name] = str(error)
    assert not left


def test_a_changed_template_changes_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered of a source from one process to the next: the template itself is read and filled."""
    spec = next(iter(op("gemm").proposals("default", "generic")))
    kernels = kernels_of("cpu", spec)
    before = instance.text_of(spec, kernels.template, kernels.context(spec))
    for cached in (instance._text, instance._plain, instance._template):
        cached.cache_clear()
    read = packaged.read_text
    changed = ("struct Config", "struct Other")
    monkeypatch.setattr(packaged, "read_text", lambda *place: read(*place).replace(*changed))
    try:
        after = instance.text_of(spec, kernels.template, kernels.context(spec))
    finally:
        for cached in (instance._text, instance._plain, instance._template):
            cached.cache_clear()
    assert after == before.replace(*changed) != before
