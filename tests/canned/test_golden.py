"""Canned estimators against tf.estimator's: trained, evaluated and asked alike."""

import re
import shutil

import golden_files
import numpy as np
import pytest
from golden_models import data_of, decode, model_of

from estimax import checkpoints
from estimax.hooks import Hook
from estimax.input import Dataset

pytestmark = pytest.mark.golden

GOLDEN = golden_files.load_golden("canned.json")
CASES = {case["id"]: case for case in GOLDEN["cases"]}
EVAL_ROWS = 10
LOSS = {"rtol": 1e-4, "atol": 1e-6}
VARIABLE = {"rtol": 1e-5, "atol": 1e-4}
compared: list[str] = []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_trains_evaluates_and_predicts_as_tensorflow(case, tmp_path):
    expected = case["expected"]
    model = model_of(case, str(tmp_path))
    train_data = data_of(GOLDEN, "train", case)
    eval_data = data_of(GOLDEN, "eval", case)
    start_from(model, train_data, case)

    losses = Losses()
    model.train(batches(train_data, case), hooks=[losses], steps=case["train_steps"])
    np.testing.assert_allclose(losses.seen, expected["loss_per_step"], **LOSS)
    check_variables(model, expected)
    check_slots(model, expected["final_slots"])

    eval_rows = Dataset.from_tensor_slices(eval_data).batch(case["eval_batch_size"])
    results = model.evaluate(lambda: eval_rows)
    # In one batch, which is one shape to compile for instead of two.
    whole = Dataset.from_tensor_slices(eval_data).batch(EVAL_ROWS)
    rows = list(model.predict(lambda: whole))
    predicted = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    check_named(results, expected["evaluate"])
    check_named(
        {"|".join(k) if isinstance(k, tuple) else k: v for k, v in predicted.items()},
        expected["predict"],
    )
    compared.append(case["id"])


def test_every_selected_case_was_compared_to_its_end(request):
    assert len(CASES) == len(GOLDEN["cases"])
    # Several processes share a run by file (--dist loadfile), so all cases ran here.
    selected = [i for i in request.session.items if i.path == request.path]
    params = [item.callspec.params for item in selected if hasattr(item, "callspec")]
    assert compared == [each["case"]["id"] for each in params]


class Losses(Hook):
    """Keeps the loss of every step."""

    def __init__(self):
        self.seen = []

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.seen.append(float(values["loss"]))


def batches(data, case):
    dataset = Dataset.from_tensor_slices(data).repeat().batch(case["train_batch_size"])
    return lambda: dataset


def start_from(model, data, case):
    """Make the initial variables the golden ones, in the model's first checkpoint."""
    model.train(batches(data, case), steps=1)
    first = checkpoints.path_of(model.model_dir, 0)
    checkpoint = checkpoints.read(first)
    given = {n: decode(v) for n, v in case["expected"]["initial_variables"].items()}
    assert given.keys() <= checkpoint.arrays.keys()
    changed = {name: given.get(name, a) for name, a in checkpoint.arrays.items()}
    shutil.rmtree(checkpoints.path_of(model.model_dir, 1))
    checkpoints.write(first, changed, 0, checkpoint.extra)


def check_variables(model, expected):
    assert model.get_variable_value("global_step") == expected["global_step"]
    for name, value in expected["final_variables"].items():
        found = model.get_variable_value(name)
        np.testing.assert_allclose(found, decode(value), err_msg=name, **VARIABLE)


def check_slots(model, expected):
    """Compare optimizer state; hyper-parameters come from code and are not kept."""
    names = {_slot_key(n): n for n in model.get_variable_names() if "training/" in n}
    for name, value in expected.items():
        if re.fullmatch(r"training(_\d+)?/\w+/\w+", name):
            continue
        key = _golden_slot_key(name)
        assert key in names, f"{name}: no such slot among {sorted(names)}"
        if value is not None:
            found = model.get_variable_value(names[key])
            np.testing.assert_allclose(found, decode(value), err_msg=name, **VARIABLE)


_V1_SLOTS = {"Adagrad": "accumulator", "Ftrl": "accumulator", "Ftrl_1": "linear"}


def _golden_slot_key(name):
    """(variable, slot) of training/<Opt>/<variable>/<slot> or v1's <variable>/<Opt>."""
    variable, _, slot = name.rpartition("/")
    if name.startswith("training"):
        return variable.split("/", 2)[2], slot
    for partition in ("/part_0", "/t_0"):
        variable = variable.removesuffix(partition)
    return variable, _V1_SLOTS[slot]


def _slot_key(name):
    """(variable, slot) of ours: training/slots/<variable>/<slot>, training/0/…"""
    _, group, rest = name.split("/", 2)
    if group == "slots":
        variable, _, slot = rest.rpartition("/")
    else:
        slot, _, variable = rest.partition("/")
    return variable, slot


def check_named(found, expected):
    """Compare by name; the file holds only the first rows of predictions."""
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        wanted = decode(value)
        got = np.asarray(found[name])
        got = got[: len(wanted)] if wanted.ndim else got
        assert got.shape == wanted.shape, name
        if wanted.dtype == object:
            texts = [word.decode() for word in got.reshape(-1)]
            assert texts == wanted.reshape(-1).tolist(), name
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=name)
