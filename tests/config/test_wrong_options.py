"""Mistakes in splits, heads, hooks, evaluations and the like, and what they earn."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, problems

RUN = "run: {model_dir: runs/small}\n"
SOURCE = "    train: {format: csv, files: train.csv, batch_size: 32}\n"
MODEL = GOOD[GOOD.index("  type: dnn\n") : GOOD.index("train: {max")]
TRAIN = "train: {max_steps: 10}\n"
HEAD = "    hidden_units: [8]\n"
CITY = "{type: hashed, buckets: 100}"

# Each is: what to replace, by what, and all the messages, without the position.
WRONG = [
    (
        SOURCE,
        "    train: {format: cvs, files: train.csv, batch_size: 32}\n",
        "data.sources.train.format: unknown format 'cvs'; did you mean 'csv'?",
    ),
    (
        SOURCE,
        "    train: {files: train.csv, batch_size: 32}\n",
        "data.sources.train.format: required key is missing; one of: csv, parquet, "
        "jsonl, tfrecord",
    ),
    (
        SOURCE,
        "    train: {format: parquet, files: a.parquet, csv: {}, batch_size: 32}\n",
        "data.sources.train.csv: unknown key; expected one of: batch_size, cache, "
        "drop_remainder, epochs, files, format, max_bad_fraction, max_bad_rows, "
        "on_bad_row, part, shard, shuffle, split",
    ),
    (
        SOURCE,
        "    train: {format: csv, files: a, csv: {encoding: utf-16}, batch_size: 2}\n",
        "data.sources.train.csv.encoding: expected utf-8, or an encoding with one byte "
        "for each character such as latin1 or cp1252, got 'utf-16'; convert the file "
        "to utf-8 instead",
    ),
    (
        SOURCE,
        "    train: {format: csv, files: a, max_bad_rows: 5, batch_size: 32}\n",
        "data.sources.train.max_bad_rows: is a limit of skipped rows: set on_bad_row "
        "to skip",
    ),
    (
        SOURCE,
        "    train: {format: csv, files: a, on_bad_row: skip, max_bad_fraction: 5, "
        "batch_size: 32}\n",
        "data.sources.train.max_bad_fraction: must be <= 1, got 5",
    ),
    (
        SOURCE,
        "    train: {format: csv, files: a, compression: zip, batch_size: 32}\n",
        "data.sources.train.compression: unknown value 'zip'; did you mean 'gzip'?",
    ),
    (
        SOURCE,
        "    all: {format: csv, files: a, batch_size: 2, split: {parts: {a: 0.8}}}\n",
        "data.sources.all.split.parts: must add up to 1, got 0.8",
        "train.source: unknown source 'train'; expected one of: a",
    ),
    (
        SOURCE,
        "    all: {format: csv, files: a, batch_size: 2, split: {parts: {train: 0.8, "
        "test: 0.2}, by: hash}}\n",
        "data.sources.all.split.key: required key is missing: the column to hash by",
    ),
    (
        SOURCE,
        "    all: {format: csv, files: a, batch_size: 2, split: {parts: {trian: 1}}}\n",
        "train.source: unknown source 'train'; did you mean 'trian'?",
    ),
    (
        SOURCE,
        "    train: {format: csv, files: a, batch_size: 2, shard: {count: 2, index: 2}}"
        "\n",
        "data.sources.train.shard.index: must be < count (2), got 2",
    ),
    (
        CITY,
        "{type: hashed, buckets: 100, many: true}",
        "features.city.delimiter: required key is missing: a CSV file has one text for "
        "several values; give what separates them",
    ),
    (
        CITY,
        "{type: hashed, buckets: 100, sequence: true, delimiter: '|'}",
        "model.dnn.features.embedding.of.0: 'city' is a sequence, for rnn.sequence and "
        "din's history only",
    ),
    (
        CITY,
        "{type: vocabulary, list: [a], size: 3}",
        "features.city.size: is for words of a file; remove it",
    ),
    (
        CITY,
        "{type: vocabulary, list: [a], oov_buckets: 1, default: 0}",
        "features.city.default: conflicts with oov_buckets; keep one of the two",
    ),
    (
        CITY,
        "{type: weighted, source: age, weights: w}",
        "features.city.source: 'age' is numeric; name a categorical one",
    ),
    (
        "normalize: zscore",
        "normalize: {min: 5, max: 2}",
        "features.age.normalize.max: must be > min (5), got 2",
    ),
    (
        "normalize: zscore",
        "normalize: {low: 5}",
        "features.age.normalize: expected a mapping with one of the keys mean, min",
    ),
    (
        "normalize: zscore",
        "normalize: zcore",
        "features.age.normalize: unknown value 'zcore'; did you mean 'zscore'?",
    ),
    (
        "normalize: zscore",
        "normalize: zscore, normalizer_fn: 'a.b:c'",
        "features.age.normalize: conflicts with normalizer_fn; keep one of the two",
    ),
    (
        "normalize: zscore",
        "normalizer_fn: log",
        'features.age.normalizer_fn: expected "package.module:name"',
    ),
    (
        HEAD,
        f"{HEAD}  head: {{type: multi_clas}}\n",
        "model.head.type: unknown type 'multi_clas'; did you mean 'multi_class'?",
    ),
    (
        HEAD,
        f"{HEAD}  head: {{type: multi_class, clases: 3}}\n",
        "model.head.clases: unknown key; did you mean 'classes'?",
    ),
    (
        HEAD,
        f"{HEAD}  head: {{type: multi, heads: {{a: {{type: binary}}}}}}\n",
        "data.labels: needs a column for 'a'",
        "data.label: conflicts with labels; keep labels",
    ),
    (
        "  label: late\n",
        "",
        "data.label: required key is missing",
    ),
    (
        "  label: late\n",
        "  labels: {a: late}\n",
        "data.labels: is for several heads; write `label`",
    ),
    (
        TRAIN,
        "optimizers: {rnn: {type: adam, learning_rate: 0.1}}\n",
        "optimizers.rnn: a dnn model has no rnn part; remove it",
    ),
    (
        TRAIN,
        "optimizers: {dnn: {type: adam, learning_rate: 0.1, clip_norm: 1, "
        "clip_value: 1}}\n",
        "optimizers.dnn.clip_norm: conflicts with clip_value; keep one of the two",
    ),
    (
        TRAIN,
        "optimizers: {dnn: {type: adam, learning_rate: 1, lazy: true, amsgrad: true}}"
        "\n",
        "optimizers.dnn.amsgrad: cannot be combined with lazy; remove one",
    ),
    (
        TRAIN,
        "optimizers: {freeze: '(dnn'}\n",
        "optimizers.freeze.0: is not a regular expression: missing ), unterminated "
        "subpattern at position 0",
    ),
    (
        TRAIN,
        "optimizers: {dnn: {type: adam, learning_rate: {schedule: warmup, then: 1}}}\n",
        "optimizers.dnn.learning_rate.warmup_steps: required key is missing",
    ),
    (
        TRAIN,
        "train: {hooks: [{type: profilr, save_steps: 5}]}\n",
        "train.hooks.0.type: unknown type 'profilr'; did you mean 'profiler'?",
    ),
    (
        TRAIN,
        "train: {hooks: [{type: logging, every_n_iter: 5}]}\n",
        "train.hooks.0.tensors: required key is missing",
    ),
    (
        TRAIN,
        "train: {hooks: [{class: MyHook}]}\n",
        'train.hooks.0.class: expected "package.module:name"',
    ),
    (
        TRAIN,
        "early_stopping: {steps: 5}\n",
        "early_stopping: compares evaluations: add an eval section",
    ),
    (
        TRAIN,
        "eval: {source: train}\nearly_stopping: {steps: 5, metric: acc}\n",
        "early_stopping.metric: unknown metric 'acc'; did you mean 'auc'?",
    ),
    (
        TRAIN,
        "eval: {source: train, also: {b: {source: tain}}}\n",
        "eval.also.b.source: unknown source 'tain'; did you mean 'train'?",
    ),
    (
        TRAIN,
        "eval: {source: train, slices: {citi: [a]}}\n",
        "eval.slices.citi: the run reads no column 'citi'; did you mean 'city'?",
    ),
    (
        TRAIN,
        "serving: {export: bets}\neval: {source: train}\nexport: [{type: best}]\n",
        "serving.export: unknown export 'bets'; did you mean 'best'?",
    ),
    (
        MODEL + TRAIN,
        "  type: baseline\n" + TRAIN + "eval: {source: train}\n"
        "export: [{type: final, explain: true}]\n",
        "export.0.explain: the output of a baseline or of k-means is not explained; "
        "leave explain out",
    ),
    (
        TRAIN,
        "serving: {rest_port: 70000}\n",
        "serving.rest_port: must be <= 65535, got 70000",
    ),
    (
        "model_dir: runs/small",
        "model_dir: runs/small, average_decay: 1.0",
        "run.average_decay: must be < 1, got 1",
    ),
    (
        "model_dir: runs/small",
        "model_dir: runs/small, debug: nans",
        "run.debug: expected true or false or 'nan', got str 'nans'",
    ),
    (
        RUN,
        "run: {model_dir: m, cluster: slrm}\n",
        "run.cluster: unknown value 'slrm'; did you mean 'slurm'?",
    ),
    (
        RUN,
        "run: {model_dir: m, cluster: {}}\n",
        "run.cluster: expected a mapping with one of the keys chief, master, "
        "coordinator",
    ),
    (
        RUN,
        'run: {model_dir: m, cluster: {coordinator: "10.0.0.1", processes: 2, '
        "process: 2}}\n",
        "run.cluster.coordinator: must be host:port, such as 10.0.0.1:4000, got "
        "'10.0.0.1'",
        "run.cluster.process: must be less than processes (2), got 2",
    ),
    (
        RUN,
        'run: {model_dir: m, cluster: {chief: "a:1", worker: ["b:1", c], task: '
        "{type: worker, index: 2}}}\n",
        "run.cluster.worker.1: must be host:port, such as 10.0.0.1:4000, got 'c'",
        "run.cluster.task.index: run.cluster.worker has 2 addresses, so the index is "
        "at most 1, got 2",
    ),
    (
        RUN,
        'run: {model_dir: m, cluster: {chief: "a:1", task: {type: ps}}}\n',
        "run.cluster.task.type: unknown value 'ps'; expected one of: chief, evaluator, "
        "worker",
    ),
    (
        RUN,
        'run: {model_dir: m, cluster: {master: "a:1"}}\n',
        "run.cluster.task: required key is missing",
    ),
    (
        MODEL,
        "  type: per_head\n  models:\n    late: {type: dnn, dnn: {features: {numeric: "
        "[agee], embedding: {dim: 4, of: [city]}}, hidden_units: [8]}, head: {type: "
        "multi, heads: {}}}\n  weights: {lat: 2}\n",
        "data.labels: needs a column for 'late'",
        "data.label: conflicts with labels; keep labels",
        "features.age: no part of the model uses it; add it to the model or remove it",
        "model.models.late.dnn.features.numeric.0: unknown feature 'agee'; did you "
        "mean 'age'?",
        "model.models.late.head: a model of per_head has one head; add a model",
        "model.weights.lat: no model has this name; did you mean 'late'?",
    ),
    (
        MODEL,
        "  type: per_head\n  models: {late: {type: dnnn}}\n",
        "data.labels: needs a column for 'late'",
        "data.label: conflicts with labels; keep labels",
        "model.models.late.type: unknown type 'dnnn'; did you mean 'dnn'?",
    ),
    (
        TRAIN,
        "train: {max_steps: 10}\noptimizers: {models: {late: {dnn: {type: sgd, "
        "learning_rate: 1.0}}}}\n",
        "optimizers.models: is for the models of per_head and average; remove it",
    ),
    (
        "type: dnn\n",
        "type: dnnn\n",
        "model.type: unknown type 'dnnn'; did you mean 'dnn'?",
    ),
    (
        "type: dnn\n",
        "type: din\n",
        "model.attend: required key is missing",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(old, new, lines) for old, new, *lines in WRONG],
    ids=[lines[0].partition(": ")[0] for _, _, *lines in WRONG],
)
def test_a_mistake_earns_its_message_with_file_line_and_column(
    tmp_path, old, new, expected
):
    assert GOOD.count(old) == 1
    found = problems(tmp_path, GOOD.replace(old, new))
    assert [line.split(": ", 1)[1] for line in found] == expected
    for line in found:
        file, row, column = line.split(": ", 1)[0].split(":")
        assert (file, row.isdecimal(), column.isdecimal()) == ("run.yaml", True, True)


def test_there_are_forty_of_them():
    assert len(WRONG) >= 40


def test_a_split_may_be_named_in_train_and_eval(tmp_path):
    split = "split: {parts: {train: 0.8, test: 0.2}}"
    text = GOOD.replace(
        SOURCE, f"    all: {{format: csv, files: train.csv, batch_size: 32, {split}}}\n"
    )
    loaded = load_text(tmp_path, text + "eval: {source: test}\n")
    assert list(loaded.run.data.sources) == ["train", "test"]
    assert loaded.run.data.sources["test"].part.start == 0.8
    origin = str(loaded.origin("data.sources.test.files"))
    assert origin.endswith("run.yaml:7:24")


def test_checking_loads_neither_jax_nor_the_packages_that_the_schema_describes(
    tmp_path,
):
    path = tmp_path / "run.yaml"
    path.write_text(GOOD)
    code = (
        "import sys; from estimax.config import load; load(sys.argv[1]);"
        "print([m for m in ('jax', 'numba', 'pyarrow', 'estimax.optimizers') "
        "if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"
