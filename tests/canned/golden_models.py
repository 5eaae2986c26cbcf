"""Golden descriptions (see the fixtures' README) made into canned estimators."""

import numpy as np
from flax import linen as nn

import estimax as ex
from estimax import canned, heads, optimizers
from estimax import feature_columns as fc

_LEGACY_NAMES = {"RMSprop": "RMSProp"}


def model_of(case, model_dir):
    """The estimator of a case, whose every argument comes from the golden file."""
    args = {name: _argument(name, value) for name, value in case["args"].items()}
    config = ex.RunConfig(tf_random_seed=1, save_summary_steps=0)
    kind = getattr(canned, case["estimator"])
    return kind(**args, model_dir=model_dir, config=config, compat=case["api"])


def _argument(name, value):
    if name.endswith("columns"):
        return [column_of(described) for described in value]
    if name.endswith("optimizer"):
        return optimizer_of(value)
    if name == "head":
        return head_of(value)
    if name == "activation_fn":
        return getattr(nn, value)
    return value


def column_of(described):
    """A feature column of its one-key description."""
    ((kind, args),) = described.items()
    made = dict(args)
    for name in ("source_column", "categorical_column"):
        if name in made:
            made[name] = column_of(made[name])
    if "normalizer" in made:
        sub, div = (made["normalizer"][key] for key in ("sub", "div"))
        del made["normalizer"]
        made["normalizer_fn"] = lambda x: (x - sub) / div
    return getattr(fc, kind)(**made)


def optimizer_of(described):
    """An optimizer: a name stays one, so that the family's rate is tested."""
    if isinstance(described, str):
        return described
    made = {name: value for name, value in described.items() if name != "class"}
    rate = made.get("learning_rate")
    if isinstance(rate, dict):
        schedule = {name: v for name, v in rate.items() if name != "schedule"}
        made["learning_rate"] = optimizers.schedule_by_name(
            rate["schedule"], **schedule
        )
    name = described["class"]
    return getattr(optimizers, _LEGACY_NAMES.get(name, name))(**made)


def head_of(described):
    """A head, with the heads inside it."""
    args = dict(described["args"])
    if "heads" in args:
        args["heads"] = [head_of(child) for child in args["heads"]]
    return getattr(heads, described["class"])(**args)


def data_of(golden, part, case):
    """The features and labels that a case is fed from "train" or "eval"."""
    described = golden["data"][part]
    names = case["features"] or list(described["features"])
    features = {name: decode(described["features"][name]) for name in names}
    labels, label = described["labels"], case["label"]
    if isinstance(label, dict):
        return features, {head: decode(labels[name]) for head, name in label.items()}
    return features, decode(labels[label])


def decode(tensor):
    """The array of a golden tensor; numbers that are no tensor become scalars."""
    if not isinstance(tensor, dict):
        return np.asarray(float(tensor))
    if tensor["dtype"] == "string":
        return np.array(tensor["data"], dtype=object).reshape(tensor["shape"])
    floats = tensor["dtype"].startswith("float")
    data = [float(v) for v in tensor["data"]] if floats else tensor["data"]
    return np.array(data, dtype=tensor["dtype"]).reshape(tensor["shape"])
