"""Every public option is in the run file, or is listed as Python's with the reason."""

import importlib
import inspect
import re
import sys
from dataclasses import MISSING
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from run_file_parity import KEYS, OTHERWISE, arguments_of, described, make_table

from estimax.config.schema.section import fields_of, members

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run_file_parity.md"
DESCRIBED = list(described())
PATHS = [one.path for one in DESCRIBED]
# The sections that one call is made of, argument by argument.
CALLED = [s for one in DESCRIBED if (s := one.section).__name__ not in KEYS]
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
    missing = [
        name
        for name in names(package)
        if f"{package}.{name}" not in PATHS and name not in OTHERWISE.get(package, {})
    ]
    assert not missing


@pytest.mark.parametrize("one", DESCRIBED, ids=PATHS)
def test_every_argument_has_a_key_or_a_reason(one):
    unsaid = [argument for argument, said in one.said().items() if said is None]
    assert not unsaid, "add a key, or a reason to scripts/run_file_parity.py"
    for said in one.said().values():
        if not said.startswith("`… "):
            continue
        kinds = [one.section]
        for part in said.removeprefix("`… ").removesuffix("`").split("."):
            fields = {k: f for kind in kinds for k, f in fields_of(kind).items()}
            assert part in fields, f"{one.section.__name__} has no key {said}"
            kinds = [
                k
                for k in members(fields[part].kind)
                if hasattr(k, "__dataclass_fields__")
            ]


# A run file must say these, says them always, or stands null for what Python computes.
OTHER_DEFAULTS = {
    *("feature_columns", "head", "learning_rate"),
    *("num_oov_buckets", "shard_tables"),
    *("batching", "batch_sizes", "max_body", "rest", "threads"),
}


@pytest.mark.parametrize(
    "section", CALLED, ids=[section.CALLS.path for section in CALLED]
)
def test_a_key_has_the_default_of_its_argument(section):
    real = arguments_of(section.CALLS.path.removeprefix("estimax."))
    for argument, field in section.CALLS.arguments(section).items():
        assert argument in real
        if argument in OTHER_DEFAULTS:
            continue
        default = MISSING if real[argument] is inspect._empty else real[argument]
        assert field.default == default


def test_every_reason_is_for_a_name_that_exists():
    for package, reasons in OTHERWISE.items():
        public = importlib.import_module(f"estimax.{package}").__all__
        assert set(reasons) <= set(public)


def test_the_page_of_the_documentation_is_up_to_date():
    assert PAGE.read_text() == make_table(), (
        "run: python scripts/run_file_parity.py > docs/reference/run_file_parity.md"
    )
