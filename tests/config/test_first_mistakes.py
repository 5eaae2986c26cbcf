"""Mistakes of a first run file, and the advice that leads to a correct one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, problems

ADVICE = {
    "model.type=DNN": "unknown type 'DNN'; did you mean 'dnn'?",
    "optimizers.dnn=adam": "write {type: adam, learning_rate: …}",
    "optimizers.dnn={type: Adam}": "unknown type 'Adam'; did you mean 'adam'?",
    "model.optimizer=adam": "unknown key; did you mean optimizers?",
    "train.epochs=3": "unknown key; did you mean data.sources.<name>.epochs?",
    "data.batch_size=3": "unknown key; did you mean data.sources.<name>.batch_size?",
    "train.learning_rate=0.1": "did you mean optimizers.linear.learning_rate or "
    "optimizers.dnn.learning_rate?",
    "model.dropout=0.1": "unknown key; did you mean model.dnn.dropout?",
    "model.hidden_units=[8]": "unknown key; did you mean model.dnn.hidden_units?",
    "model.dnn.hidden_units=8": "expected a list, got int 8; write [8]",
    "model.dnn.dropout=50": "must be < 1, got 50",
    "model.head=regression": "write {type: regression}",
    "model.head=multi_class": "write {type: multi_class, classes: …}",
    "export=best": "write [{type: best}]",
    "eval=train": "write {source: train}",
    "features.city=hashed": "write {type: hashed, buckets: …}",
    "features.age.type=number": "did you mean 'numeric'?",
    "data.sources.train.files=[]": "needs at least 1 item, has 0",
    "data.sources.train.shuffle=true": "write {} for its defaults",
    "data.sources.train.batch_size=32.0": "write 32",
    "train.steps=5": "did you mean 'max_steps'?",
    "train.max_steps=1e3": "write 1000",
    "run.model_dir=": "must not be empty; name a directory",
}


@pytest.mark.parametrize("override", ADVICE)
def test_a_first_mistake_is_answered_with_what_to_write(tmp_path, override):
    (found, *more) = problems(tmp_path, GOOD, override)
    assert ADVICE[override] in found
    assert not more, "one mistake gives one message"
