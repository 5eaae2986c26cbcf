"""Write a run as a Python script that trains the same model.

    print(script_of(loaded))

The script is printed from the same expressions that `build` evaluates. Numbers that the
run takes from the data, such as means and vocabularies, are written out.
"""

from __future__ import annotations

import importlib
import json
import keyword
import math
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from estimax.config.build import RunPlan, plan
from estimax.config.expressions import CallExpression, Expression, Function, Reference
from estimax.config.load import LoadedRun


def script_of(loaded: LoadedRun) -> str:
    """Return a script that trains and evaluates the model of a run.

    Reads the train source if features need its statistics.
    """
    made = plan(loaded)
    script = Script()
    last = script.text(_training_call(made))
    title = f'"""{loaded.run.name}, written by `estimax python {loaded.path.name}`."""'
    imports = "\n".join([*sorted(script.imports), "import estimax as ex"])
    body = _join_statements(script.lines)
    end = f'if __name__ == "__main__":\n    {_indent_lines(last)}'
    return f"{title}\n\n{imports}\n\n{body}\n\n\n{end}\n"


def _training_call(made: RunPlan) -> CallExpression:
    """Return the call that trains: `train_and_evaluate`, or `train` without eval."""
    train = made.train_spec()
    specs = made.eval_specs()
    if not specs:
        return CallExpression("train", train.named, train.positional, of=made.model)
    train = CallExpression(train.path, train.named, train.positional, name="train_spec")
    first = specs[0]
    one = CallExpression(first.path, first.named, first.positional, name="eval_spec")
    given = (made.model, train, one if len(specs) == 1 else [one, *specs[1:]])
    return CallExpression("estimax.estimator.train_and_evaluate", {}, given)


def _join_statements(lines: list[str]) -> str:
    """Return statements with two empty lines around functions and none elsewhere."""
    text = "\n".join(lines).strip("\n")
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def _indent_lines(text: str) -> str:
    return text.replace("\n", "\n    ")


_WIDTH = 72  # of a line, before it is indented


class Script:
    """Writes expressions as a Python script, with its imports and variables.

    >>> script = Script()
    >>> script.text(CallExpression("math.floor", positional=(2.5,), name="low"))
    'low'
    >>> script.lines
    ['low = math.floor(2.5)']
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._taken: set[str] = {"ex"}
        self._kept: list[Any] = []  # so that no id is used for another expression

    def text(self, value: Any) -> str:
        """Return an expression as Python; assign its named parts to variables first."""
        if isinstance(value, str):
            # With double quotes, which JSON and Python read alike.
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, Mapping):
            items = [f"{self.text(k)}: {self.text(v)}" for k, v in value.items()]
            return _group("{", items, "}")
        if isinstance(value, list):
            return _group("[", [self.text(item) for item in value], "]")
        if isinstance(value, tuple):
            items = [self.text(item) for item in value]
            return f"({items[0]},)" if len(items) == 1 else _group("(", items, ")")
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, Reference):
            return self._path(value.path)
        if isinstance(value, Function):
            return self._function(value)
        if isinstance(value, CallExpression):
            return self._call(value)
        return repr(value)

    def _call(self, call: CallExpression) -> str:
        if id(call) in self._names:
            return self._names[id(call)]
        if call.path == "__getitem__":
            return f"{self.text(call.of)}[{self.text(call.positional[0])}]"
        if call.of is None:
            target = self._path(call.path)
        else:
            target = f"{self.text(call.of)}.{call.path}"
        arguments = [self.text(item) for item in call.positional]
        arguments += [f"{k}={self.text(v)}" for k, v in call.named.items()]
        text = _group(f"{target}(", arguments, ")")
        if not call.name:
            return text
        name = self._variable(call, call.name)
        self.lines.append(f"{name} = {text}")
        return name

    def _function(self, function: Function) -> str:
        if id(function) in self._names:
            return self._names[id(function)]
        name = self._variable(function, function.name)
        body = textwrap.indent(f"return {self.text(function.body)}", "    ")
        self.lines.append(f"\n\ndef {name}():\n{body}\n\n")
        return name

    def _variable(self, value: Expression, wanted: str) -> str:
        clean = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if clean[0].isdigit() or keyword.iskeyword(clean):
            clean = f"_{clean}"
        name, number = clean, 2
        while name in self._taken:
            name, number = f"{clean}_{number}", number + 1
        self._taken.add(name)
        self._names[id(value)] = name
        self._kept.append(value)
        return name

    def _path(self, path: str) -> str:
        """Return a dotted path as the script writes it, and note its import."""
        if path.startswith("estimax.") and ":" not in path:
            package, _, name = path.removeprefix("estimax.").partition(".")
            public = importlib.import_module("estimax").__all__
            return f"ex.{package}.{name}" if package in public else f"ex.{name}"
        module, colon, attribute = path.partition(":")
        if not colon:
            module, _, attribute = path.rpartition(".")
        if module == "builtins":
            return attribute
        self.imports.add(f"import {module}")
        return f"{module}.{attribute}"


def _group(start: str, items: list[str], end: str) -> str:
    """Return items in brackets, on one line if they fit, else on lines of their own."""
    line = ", ".join(items)
    used = len(start.rpartition("\n")[2]) + len(end)
    if len(line) + used <= _WIDTH and "\n" not in line:
        return f"{start}{line}{end}"
    if all(len(item) < 20 and "\n" not in item for item in items):
        items = _fill_lines(items)
    inside = textwrap.indent(",\n".join(items), "    ")
    return f"{start}\n{inside},\n{end}"


def _fill_lines(items: list[str]) -> list[str]:
    """Join short items to lines."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= _WIDTH - 4:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines
