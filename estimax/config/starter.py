"""Write the run file that `estimax init` makes, with comments that explain it.

    text = starter_text(infer(table, "late"), sources, name="flights", command="…")

Everything that the data decided is written out, so that the file can be edited; what
was left out stands in a comment with the reason.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from estimax.config.dump import dump_flow
from estimax.config.infer import BEST_METRIC, Inferred
from estimax.config.infer_features import InferredFeature

ALL = "all"  # the name of a source that is split into parts
# The parts of the file, and of a train file beside which there is a test file.
SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}
SHARES_WITHOUT_TEST = {"train": 0.85, "validation": 0.15}
_WIDTH = 88


def starter_text(
    inferred: Inferred,
    files: Mapping[str, str],
    *,
    name: str,
    path: str,
    made_by: str,
    schema: str = "",
) -> str:
    """Return a commented run file.

    Args:
      inferred: The choice to write.
      files: The file of each source: `ALL`, which is split, and "test" if there is one.
      name: The name of the run.
      path: The path of the run file, for the commands in its comments.
      made_by: The command that wrote it.
      schema: The URL of the JSON Schema for editors; "" leaves it out.
    """
    parts = [
        # Editors with the YAML language server complete and check the file.
        *([f"# yaml-language-server: $schema={schema}"] if schema else []),
        _head(inferred, name, path, made_by),
        _run(inferred),
        _data(inferred, files),
        _features(inferred),
        _model(inferred),
        _training(inferred),
    ]
    return "\n".join(parts)


def _head(inferred: Inferred, name: str, path: str, made_by: str) -> str:
    about = f"Predict {_plain(inferred.label)!r}: {_plain(inferred.task.remark)}."
    return "\n".join(
        [
            *_comment(about),
            "#",
            f"#   estimax check {path} --data",
            f"#   estimax train {path}",
            f"#   estimax show {path}                # every value, also the defaults",
            "#",
            *_comment(f"Written by `{made_by}`. It is yours to edit."),
            "schema: estimax/run/v1",
            f"name: {dump_flow(name)}",
            "seed: 42",
            "",
        ]
    )


def _run(inferred: Inferred) -> str:
    saving = inferred.sections()["run"]["save_checkpoints"]
    return "\n".join(
        [
            "run:",
            "  model_dir: runs/${name}",
            "  # The model is evaluated whenever a checkpoint is saved.",
            f"  save_checkpoints: {dump_flow(saving)}",
            "  # Show what a linear model and LightGBM score on the same rows.",
            "  compare: true",
            "",
        ]
    )


def _data(inferred: Inferred, files: Mapping[str, str]) -> str:
    lines = [_rule("data"), "data:", f"  label: {dump_flow(inferred.label)}"]
    if inferred.weight is not None:
        column = dump_flow(inferred.weight)
        lines += [f"  # weight: {column}  # looks like it; then metrics are weighted"]
    words = inferred.task.vocabulary
    if words is not None:
        lines += ["  # The words of the label, in the order of the classes."]
        lines += _wrap_list("  label_vocabulary: ", words)
    lines += ["  sources:"]
    for name, file in files.items():
        is_train = name == ALL
        source = inferred.source(for_training=is_train)
        lines += [f"    {name}:", f"      format: {source.pop('format')}"]
        lines += [f"      files: {dump_flow(file)}"]
        if is_train:
            lines += _split(inferred, has_test="test" in files)

            count = f"{inferred.train_rows:,} rows: {inferred.steps:,} steps in all."
            lines += [f"      # {count}", f"      # {_shuffling(inferred)}"]
            if inferred.is_cached:
                lines += [
                    "      # Rows stay in memory; evaluations read no file again."
                ]
        lines += [f"      {key}: {dump_flow(value)}" for key, value in source.items()]
    return "\n".join([*lines, ""])


def _split(inferred: Inferred, *, has_test: bool) -> list[str]:
    shares = SHARES_WITHOUT_TEST if has_test else SHARES
    given: dict[str, Any] = {"parts": shares, "by": "random"}
    remark = "Each part is a source. By hash, the rows of one key stay together."
    time = inferred.time
    if time is not None and time.is_used:
        given |= {"by": "time", "key": time.column}
        remark = f"{_plain(time.column)!r} orders the rows: the last ones are held out."
    lines = [f"      # {remark}"]
    if time is not None and not time.is_used:
        column = f"{_plain(time.column)!r} {_plain(time.reason)}"
        lines += _comment(
            f"For a model of the future, split by time; {column}.", indent="      # "
        )
    return [*lines, f"      split: {dump_flow(given)}"]


def _shuffling(inferred: Inferred) -> str:
    rows = inferred.shuffled_rows
    if rows >= inferred.train_rows:
        return "The buffer holds all rows: the whole file is shuffled."
    return f"The buffer holds {rows:,} rows; shuffle the file itself if it is sorted."


def _features(inferred: Inferred) -> str:
    lines = [_rule("features")]
    if inferred.skipped:
        lines += ["# Left out:"]
        for column, reason in inferred.skipped:
            lines += _comment(f"- {_plain(column)}: {_plain(reason)}", indent="#   ")
    lines += ["features:"]
    for feature in inferred.read_features:
        lines += _feature(feature)
    return "\n".join([*lines, ""])


def _feature(feature: InferredFeature) -> list[str]:
    line = f"  {dump_flow(feature.name)}: {dump_flow(feature.section)}"
    remark = f"# {_plain(feature.remark)}"
    if len(line) + 2 + len(remark) <= _WIDTH:
        return [f"{line}  {remark}"]
    if len(line) > _WIDTH and "boundaries" in feature.section:
        section = dict(feature.section)
        edges = section.pop("boundaries")
        keys = [f"    {key}: {dump_flow(value)}" for key, value in section.items()]
        name = f"  {dump_flow(feature.name)}:  {remark}"
        return [name, *keys, *_wrap_list("    boundaries: ", edges)]
    return [f"  {remark}", line] if len(remark) < _WIDTH else [line]


def _model(inferred: Inferred) -> str:
    model = inferred.model()
    lines = [_rule("model"), "model:", f"  type: {model['type']}"]
    if "linear" in model:
        lines += ["  linear:"]
        lines += _wrap_list("    features: ", model["linear"]["features"])
    lines += _members(model, inferred.train_rows)
    if "dnn" in model:
        lines += ["  dnn:", "    features:"]
        lines += _inputs(model["dnn"]["features"])
        lines += [f"    hidden_units: {dump_flow(model['dnn']['hidden_units'])}"]
        lines += [f"    dropout: {model['dnn']['dropout']}"]
    lines += [f"  head: {dump_flow(model['head'])}"]
    chosen = inferred.sections()["optimizers"]
    lines += ["", "optimizers:"] if chosen else []
    lines += [f"  {part}: {dump_flow(given)}" for part, given in chosen.items()]
    return "\n".join([*lines, ""])


def _members(model: Mapping[str, Any], rows: int) -> list[str]:
    """Return the lines of trees, and of the models of an average."""
    if model["type"] == "boosted_trees":
        options = {k: v for k, v in model.items() if k not in ("type", "head")}
        return [f"  {key}: {value}" for key, value in options.items()]
    if model["type"] != "average":
        return []
    lines = []
    if len(model["models"]) > 1:
        lines += ["  # Averaged with the weights that are best on the validation rows."]
    lines += ["  models:"]
    for name, section in model["models"].items():
        options = {k: v for k, v in section.items() if k != "type"}
        sizes = "" if options else f"  # sizes chosen for {rows:,} rows"
        lines += [f"    {name}:", f"      type: {section['type']}{sizes}"]
        lines += [f"      {key}: {value}" for key, value in options.items()]
    return lines


def _inputs(inputs: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for kind in ("numeric", "indicator"):
        if kind in inputs:
            lines += _wrap_list(f"      {kind}: ", inputs[kind])
    groups = inputs.get("embedding", [])
    groups = groups if isinstance(groups, list) else [groups]
    if groups:
        lines += ["      embedding:"]
    for group in groups:
        lines += _wrap_list(f"        - {{dim: {group['dim']}, of: ", group["of"], "}")
    return lines


def _training(inferred: Inferred) -> str:
    stopping = inferred.early_stopping
    lines = [
        _rule("training"),
        f"train: {{max_steps: {inferred.steps}}}",
        "# The validation rows choose the step that is exported, and end the training.",
        "eval: {source: validation}",
        *([f"early_stopping: {dump_flow(stopping)}"] if stopping else []),
        "export:",
        f"  - {{type: best, metric: {BEST_METRIC}, keep: 1}}",
        "# The test rows decide nothing: their metrics are those to expect.",
        "test: {source: test}",
    ]
    return "\n".join([*lines, ""])


def _rule(title: str) -> str:
    return f"# {'-' * (_WIDTH - 3 - len(title))} {title}"


def _wrap_list(start: str, items: Sequence[Any], end: str = "") -> list[str]:
    """Return a list in lines of at most 88 characters where they can be broken."""
    text = f"{start}[{', '.join(dump_flow(item) for item in items)}]{end}"
    if len(text) <= _WIDTH or any(" " in dump_flow(item) for item in items):
        return [text]
    indent = " " * (len(start) + 1)
    # The start has spaces of its own, so only the items are broken.
    body = textwrap.wrap(
        text[len(start) :],
        _WIDTH - len(start),
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [start + body[0], *(indent[:-1] + line for line in body[1:])]


def _comment(text: str, indent: str = "# ") -> list[str]:
    return [indent + line for line in textwrap.wrap(text, _WIDTH - len(indent))]


def _plain(text: str) -> str:
    """Return text of the data for a comment: one line of printable characters."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= 200 else f"{line[:199]}…"
