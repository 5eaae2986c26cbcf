"""Every public option is in the run file, or is listed as Python's with the reason."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from estimax.config.decode import fields_of, members
from estimax.config.parity import OTHERWISE, described, table
from estimax.config.schema.signatures import COMPUTED, REQUIRED, arguments

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run_file_parity.md"
SECTIONS = list(described())
# Public names that are options of a run: all of them must be said somewhere.
OPTIONS = {
    "canned": r"[A-Z].*",
    "heads": r".*Head.*",
    "feature_columns": r".*_columns?|.*_embeddings|.*categorical_column_with_.*",
    "optimizers": r"[A-Z]\w*|.*_decay|.*_warmup|piecewise_constant",
    "hooks": r".*Hook|stop_if.*|make_.*_hook",
    "export": r".*Exporter",
    "estimator": r"RunConfig|TrainSpec|EvalSpec|Estimator",
    "checkpoints": r"WarmStartSettings|VocabInfo",
    "input": r".*_files|.*Dataset|.*_input_fn|make_.*_dataset",
    "serving": r"ServerConfig|BatchingConfig|RestLimits",
}
# Values that a program passes on or gets back, not options of a run.
VALUES = {
    "optimizers": {"MovingAverage", "Optimizer", "Rule", "TrainOp"},
    "feature_columns": {"is_categorical"},
    "input": {"Dataset"},
}


def names(package):
    module = importlib.import_module(f"estimax.{package}")
    found = [n for n in module.__all__ if re.fullmatch(OPTIONS[package], n)]
    return [n for n in found if n not in VALUES.get(package, ())]


@pytest.mark.parametrize("package", sorted(OPTIONS))
def test_every_public_object_is_in_the_run_file_or_listed(package):
    said = {about.calls for _, about in SECTIONS}
    missing = [
        name
        for name in names(package)
        if f"estimax.{package}.{name}" not in said
        and name not in OTHERWISE.get(package, {})
    ]
    assert not missing


@pytest.mark.parametrize(
    ("section", "about"), SECTIONS, ids=[about.calls for _, about in SECTIONS]
)
def test_every_argument_has_a_key_or_a_reason(section, about):
    assert not about.unsaid, "add it to `kinds`, `elsewhere` or `python_only`"
    for key in about.keys.values():
        kinds, found = [section], None
        for part in key.split("."):
            fields = {k: f for kind in kinds for k, f in fields_of(kind).items()}
            assert part in fields, f"{section.__name__} has no key {key}"
            found = fields[part]
            kinds = [
                k for k in members(found.kind) if hasattr(k, "__dataclass_fields__")
            ]


@pytest.mark.parametrize(
    "about", [about for _, about in SECTIONS], ids=[a.calls for _, a in SECTIONS]
)
def test_the_parsed_signature_is_the_real_one(about):
    module, _, name = about.calls.rpartition(".")
    real = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    parsed = arguments(about.file, about.name)
    for argument in real.values():
        if argument.kind is argument.VAR_KEYWORD:
            continue
        assert argument.name in parsed
        found = parsed[argument.name].default
        if found is REQUIRED:
            assert argument.default is argument.empty
        elif found is not COMPUTED:
            assert found == argument.default or isinstance(found, list | dict)


def test_every_reason_is_for_a_name_that_exists():
    for package, reasons in OTHERWISE.items():
        public = importlib.import_module(f"estimax.{package}").__all__
        assert set(reasons) <= set(public)


def test_the_page_of_the_documentation_is_up_to_date():
    assert PAGE.read_text() == table(), (
        "run: python -m estimax.config.parity > docs/reference/run_file_parity.md"
    )
