"""Which options of Python a run file has, as a table.

    python -m estimax.config.parity > docs/reference/run_file_parity.md

The sections of the schema say which function they describe and which key is which
argument (`schema/derive.py`). A test compares this with the public signatures: a name
or an argument that is in neither list makes it fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from estimax.config import schema
from estimax.config.decode import below, tag_of
from estimax.config.schema.derive import Describes
from estimax.config.schema.signatures import arguments

# Public names that no section describes, with the reason or with what to write.
OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "canned": {
        "BaselineClassifier": "`model: {type: baseline}` with a classification head",
        "BaselineRegressor": "`model: {type: baseline}`, `head: {type: regression}`",
        "DNNClassifier": "`model: {type: dnn}` with a classification head",
        "DNNRegressor": "`model: {type: dnn}` with `head: {type: regression}`",
        "DNNLinearCombinedClassifier": "`model: {type: dnn_linear_combined}`",
        "DNNLinearCombinedRegressor": "`model: {type: dnn_linear_combined}`",
        "LinearClassifier": "`model: {type: linear}` with a classification head",
        "LinearRegressor": "`model: {type: linear}` with `head: {type: regression}`",
        "RNNClassifier": "`model: {type: rnn}` with a classification head",
        "dnn_logit_fn_builder": "Python only: for a `model_fn`",
        "linear_logit_fn_builder": "Python only: for a `model_fn`",
    },
    "heads": {
        "BaseHead": "Python only: to write a head; name a model with `class`",
        "Head": "Python only: a protocol",
        "losses": "Python only: functions for a head; name one with `loss_fn`",
        "make_spec": "Python only: for a `model_fn`",
    },
    "optimizers": {
        "Clip": "`optimizers.<part>.clip_value`, `clip_norm` and `clip_global_norm`",
        "Group": "`optimizers.linear` and `optimizers.dnn`, and `optimizers.freeze`",
        "minimize": "`optimizers.freeze`",
        "by_name": "`optimizers.<part>.type`",
        "schedule_by_name": "`optimizers.<part>.learning_rate.schedule`",
    },
    "hooks": {
        "BoardHook": "training adds it if `run.save_summary_steps` is not 0",
        "FinalOpsHook": "Python only: returns values to the program",
        "InMemoryEvaluatorHook": "`eval.every_steps`, `eval.also.<name>.every_steps`",
        "Hook": "`train.hooks: [{class: ...}]`",
        "SessionRunHook": "`train.hooks: [{class: ...}]`",
        "CheckpointSaverListener": "Python only: objects that are called around a save",
        "SecondOrStepTimer": "Python only: to write a hook",
    },
    "export": {
        "Exporter": "Python only: a protocol",
        "build_parsing_serving_input_receiver_fn": "`export: [{receiver: examples}]`",
        "build_raw_serving_input_receiver_fn": "`export: [{receiver: columns}]`",
        "metric_compare": "`export: [{metric: ..., mode: ...}]`",
    },
    "feature_columns": {
        "shared_embedding_columns": "`shared: true`; this is its older name",
        "concatenate_context_input": "Python only: for a `model_fn`",
        "input_layer": "Python only: for a `model_fn`",
        "linear_model": "Python only: for a `model_fn`",
        "sequence_input_layer": "Python only: for a `model_fn`",
    },
    "estimator": {
        "add_metrics": "Python only: takes a function of the model's tensors",
        "forward_features": "Python only: changes what is predicted",
        "train_and_evaluate": "`estimax train`",
    },
    "input": {
        "CsvDataset": "`format: csv`",
        "make_csv_dataset": "`format: csv`",
        "make_batched_features_dataset": "`format: tfrecord`",
        "TextLineDataset": "`format: jsonl`; Python only for other lines",
        "FixedLengthRecordDataset": "Python only: records that a program parses",
        "numpy_input_fn": "Python only: arrays in memory",
        "pandas_input_fn": "Python only: tables in memory",
        "part_of": "`data.sources.<name>.split`",
        "rows_between": "`data.sources.<name>.split: {by: time}`",
        "rows_where": "`eval.slices`",
        "split_values": "`features.<name>.delimiter`",
        "as_vectors": "`features.<name>.shape`",
    },
}


def described() -> Iterator[tuple[type, Describes]]:
    """Yield every section that a run file can hold with what it describes."""
    seen: set[str] = set()
    for _, section in sections_of(schema.Run):
        for about in getattr(section, "DESCRIBES", ()):
            if about.calls not in seen:
                seen.add(about.calls)
                yield section, about


def table() -> str:
    """Return the page of the documentation that lists every option."""
    lines = [
        "# Run files and Python",
        "",
        "Every option of the public classes and functions, and how a run file says it.",
        "This page is written by `python -m estimax.config.parity`; a test compares it",
        "with the signatures. `…` stands for the section that describes the object.",
        "",
    ]
    for package, rows in sorted(_rows().items()):
        lines += [f"## `ex.{package}`", "", "| Python | run file |", "|---|---|"]
        lines += [f"| `{name}` | {said} |" for name, said in rows]
        lines.append("")
    return "\n".join(lines)


def _rows() -> dict[str, list[tuple[str, str]]]:
    rows: dict[str, list[tuple[str, str]]] = {}
    for section, about in described():
        package, name = about.calls.removeprefix("estimax.").split(".", 1)
        here = _address(section)
        mine = rows.setdefault(package, [])
        mine.append((name, f"{here}"))
        for argument, key in about.keys.items():
            mine.append((f"{name}({argument})", f"`… {key}`"))
        for argument in arguments(about.file, about.name):
            if argument in about.elsewhere:
                mine.append((f"{name}({argument})", about.elsewhere[argument]))
            elif argument in about.python_only:
                reason = f"Python only: {about.python_only[argument]}"
                mine.append((f"{name}({argument})", reason))
    for package, names in OTHERWISE.items():
        rows.setdefault(package, []).extend(names.items())
    return {
        package: sorted(found, key=lambda row: row[0].lower())
        for package, found in rows.items()
    }


def _address(section: type) -> str:
    """Return where a section is in a run file, with its tag."""
    tag = tag_of(section)
    text = "" if tag is None else f", `{{{tag[0]}: {tag[1]}}}`"
    places = [place for place, found in sections_of(schema.Run) if found is section]
    return f"`{places[0]}`{text}" if places else text.removeprefix(", ")


def sections_of(section: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield the address of every section below a section, with the section."""
    for here, found in below(section, path):
        yield here, found
        yield from sections_of(found, here)


if __name__ == "__main__":
    print(table(), end="")
