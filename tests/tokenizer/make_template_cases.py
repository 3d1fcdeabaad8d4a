#!/usr/bin/env python3
"""Writes template_cases.json: templates of our own with what Jinja2 renders from them, in the environment that
transformers builds for chat templates. Usage: make_template_cases.py <build>/fixtures/tokenizer, which holds expressions.txt and
templates.txt; tools/golden_data.py packs the result (needs jinja2 3.1)."""
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_keep"), [], [], body).set_lineno(lineno)

    def _keep(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception

VARIABLES = {
    "s": "Hello World",
    "padded": "  two words \n",
    "text": "one\ntwo\n\nthree\n",
    "uni": "Größe 東京 😀 éa",
    "empty": "",
    "n": 7,
    "big": 18446744073709551615,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nil": None,
    "list": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "d": {"b": 1, "a": [1, 2.0, "x"], "items": "entry", "c": {"deep": None}},
    "people": [
        {"name": "Ann", "age": 30, "tags": ["x", "y"]},
        {"name": "bob", "age": 25, "tags": []},
        {"name": "Cid", "age": 30},
    ],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me'"},
        {"role": "assistant", "content": "a</think>b", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
        {"role": "tool", "content": "\x1b[0m\x00\u2028"},
    ],
}

# One expression per line; each is rendered as {{ expression }}.
FOLDER = pathlib.Path(sys.argv[1])
EXPRESSIONS = (FOLDER / "expressions.txt").read_text("utf-8").split("\n")

# Whole templates, separated by lines of four dashes.
TEMPLATES = (FOLDER / "templates.txt").read_text("utf-8").split("\n----\n")


def case(source):
    try:
        return {"template": source, "rendered": environment.from_string(source).render(**VARIABLES)}
    except Exception as error:  # the message is Jinja2's: only that it fails is compared
        print(f"fails: {source!r}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"template": source, "fails": True}


cases = [case("{{ " + e + " }}") for e in EXPRESSIONS if e and not e.startswith("#")]
cases += [case(t) for t in TEMPLATES]
text = json.dumps({"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases}, indent=1)
(FOLDER / "template_cases.json").write_text(text + "\n", "utf-8")
