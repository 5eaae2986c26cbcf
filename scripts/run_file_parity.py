"""Which options of Python a run file has, as a table.

    python scripts/run_file_parity.py > docs/reference/run_file_parity.md

Most sections of a run file name the function that they stand for (`calls` in
`estimax/config/schema/section.py`), and their keys are its arguments. The tables below
say the rest: keys of sections that are not built by one call, and why an argument has
no key. `tests/config/test_parity.py` compares all of it with the public signatures.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass

from estimax.config.schema import Run
from estimax.config.schema.section import fields_of, sections_below, tag_of

# The functions of sections that are not built by one call, with the address of each
# argument below the section. An argument that is not listed has a key of its name.
KEYS = {
    "CsvSource": {
        "input.csv_files": {
            "columns": "csv.columns",
            "null_values": "csv.null_values",
            "delimiter": "csv.delimiter",
            "quote": "csv.quote",
            "header": "csv.header",
            "encoding": "csv.encoding",
        },
    },
    "ParquetSource": {
        "input.parquet_files": {},
    },
    "JsonSource": {
        "input.json_files": {},
    },
    "RecordSource": {
        "input.TFRecordDataset": {
            "filenames": "files",
            "compression_type": "compression",
        },
    },
    "NumericConfig": {
        "feature_columns.sequence_numeric_column": {
            "key": "column",
            "default_value": "default",
            "normalizer_fn": "normalize",
        },
        "feature_columns.numeric_column": {
            "key": "column",
            "default_value": "default",
            "normalizer_fn": "normalize",
        },
    },
    "ExpressionConfig": {
        "feature_columns.expression_column": {
            "default_value": "default",
            "normalizer_fn": "normalize",
        },
    },
    "TextConfig": {
        "feature_columns.text_column": {
            "key": "column",
            "num_oov_buckets": "oov_buckets",
        },
    },
    "DateDifferenceConfig": {
        "feature_columns.date_difference_column": {
            "start": "from",
            "end": "to",
            "default_value": "default",
            "normalizer_fn": "normalize",
        },
    },
    "DateConfig": {
        "feature_columns.date_column": {
            "key": "column",
        },
    },
    "BucketizedConfig": {
        "feature_columns.bucketized_column": {
            "source_column": "source",
        },
    },
    "PiecewiseLinearConfig": {
        "feature_columns.piecewise_linear_column": {
            "source_column": "source",
        },
    },
    "PeriodicConfig": {
        "feature_columns.periodic_column": {
            "source_column": "source",
        },
    },
    "VocabularyConfig": {
        "feature_columns.sequence_categorical_column_with_vocabulary_file": {
            "key": "column",
            "vocabulary_file": "file",
            "vocabulary_size": "size",
            "num_oov_buckets": "oov_buckets",
            "default_value": "default",
        },
        "feature_columns.sequence_categorical_column_with_vocabulary_list": {
            "key": "column",
            "vocabulary_list": "list",
            "default_value": "default",
            "num_oov_buckets": "oov_buckets",
        },
        "feature_columns.categorical_column_with_vocabulary_file": {
            "key": "column",
            "vocabulary_file": "file",
            "vocabulary_size": "size",
            "default_value": "default",
            "num_oov_buckets": "oov_buckets",
        },
        "feature_columns.categorical_column_with_vocabulary_list": {
            "key": "column",
            "vocabulary_list": "list",
            "default_value": "default",
            "num_oov_buckets": "oov_buckets",
        },
    },
    "HashedConfig": {
        "feature_columns.sequence_categorical_column_with_hash_bucket": {
            "key": "column",
            "hash_bucket_size": "buckets",
        },
        "feature_columns.categorical_column_with_hash_bucket": {
            "key": "column",
            "hash_bucket_size": "buckets",
        },
    },
    "IdentityConfig": {
        "feature_columns.sequence_categorical_column_with_identity": {
            "key": "column",
            "num_buckets": "buckets",
            "default_value": "default",
        },
        "feature_columns.categorical_column_with_identity": {
            "key": "column",
            "num_buckets": "buckets",
            "default_value": "default",
        },
    },
    "CrossedConfig": {
        "feature_columns.crossed_column": {
            "hash_bucket_size": "buckets",
        },
    },
    "WeightedConfig": {
        "feature_columns.weighted_categorical_column": {
            "categorical_column": "source",
            "weight_feature_key": "weights",
        },
    },
    "CombinedModelConfig": {
        "canned.DNNLinearCombinedEstimator": {
            "linear_feature_columns": "linear.features",
            "dnn_feature_columns": "dnn.features",
            "dnn_hidden_units": "dnn.hidden_units",
            "dnn_activation_fn": "dnn.activation",
            "dnn_dropout": "dnn.dropout",
            "batch_norm": "dnn.batch_norm",
            "linear_sparse_combiner": "linear.combiner",
        },
    },
    "DeepFeatures": {
        "feature_columns.indicator_column": {
            "categorical_column": "indicator",
        },
    },
    "EmbeddingGroup": {
        "feature_columns.shared_embeddings": {
            "categorical_columns": "of",
            "dimension": "dim",
            "shared_embedding_collection_name": "shared_name",
            "ckpt_to_load_from": "pretrained.checkpoint",
            "tensor_name_in_ckpt": "pretrained.variable",
            "use_safe_embedding_lookup": "safe_lookup",
        },
        "feature_columns.embedding_column": {
            "categorical_column": "of",
            "dimension": "dim",
            "ckpt_to_load_from": "pretrained.checkpoint",
            "tensor_name_in_ckpt": "pretrained.variable",
            "use_safe_embedding_lookup": "safe_lookup",
        },
    },
    "MultiHeadConfig": {
        "heads.MultiHead": {
            "head_weights": "weights",
        },
    },
    "DnnModelConfig": {
        "canned.DNNEstimator": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
            "activation_fn": "dnn.activation",
            "dropout": "dnn.dropout",
            "batch_norm": "dnn.batch_norm",
        },
    },
    "TabularModelConfig": {
        "canned.TabularEstimator": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
            "members": "dnn.members",
            "dropout": "dnn.dropout",
            "train_rows": "dnn.train_rows",
        },
    },
    "LinearModelConfig": {
        "canned.LinearEstimator": {
            "feature_columns": "linear.features",
            "sparse_combiner": "linear.combiner",
        },
    },
    "BaselineModelConfig": {
        "canned.BaselineEstimator": {},
    },
    "DeepFmModelConfig": {
        "canned.DeepFMClassifier": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
            "linear_feature_columns": "linear_features",
            "dropout": "dnn.dropout",
        },
    },
    "DcnModelConfig": {
        "canned.DCNClassifier": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
            "dropout": "dnn.dropout",
        },
    },
    "DinModelConfig": {
        "canned.DINClassifier": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
            "dropout": "dnn.dropout",
        },
    },
    "MmoeModelConfig": {
        "canned.MMoEEstimator": {
            "feature_columns": "dnn.features",
            "expert_units": "dnn.expert_units",
            "tower_units": "dnn.tower_units",
            "experts": "dnn.experts",
        },
    },
    "EsmmModelConfig": {
        "canned.ESMMClassifier": {
            "hidden_units": "dnn.hidden_units",
            "feature_columns": "dnn.features",
        },
    },
    "RnnModelConfig": {
        "heads.SequentialHeadWrapper": {
            "static_head": "head",
            "sequence_length_mask": "rnn.sequence_mask",
        },
        "canned.RNNEstimator": {
            "sequence_feature_columns": "rnn.sequence",
            "context_feature_columns": "rnn.context",
            "units": "rnn.units",
            "cell_type": "rnn.cell",
            "rnn_cell_fn": "rnn.cell_fn",
            "return_sequences": "rnn.return_sequences",
            "bidirectional": "rnn.bidirectional",
        },
    },
    "PerHeadModelConfig": {
        "canned.PerHeadEstimator": {
            "head_weights": "weights",
        },
    },
    "AverageModelConfig": {
        "canned.AverageEstimator": {
            "members": "models",
            "held_out_fn": "held_out",
        },
    },
    "ModelFnConfig": {
        "estimator.Estimator": {},
    },
    "WarmupConfig": {
        "optimizers.linear_warmup": {
            "schedule": "then",
        },
    },
    "WarmStartSection": {
        "checkpoints.WarmStartSettings": {
            "ckpt_to_initialize_from": "from",
            "vars_to_warm_start": "variables",
            "var_name_to_vocab_info": "vocabularies",
            "var_name_to_prev_var_name": "renamed",
        },
    },
    "TrainSection": {
        "estimator.TrainSpec": {
            "input_fn": "source",
        },
    },
    "EvalSection": {
        "estimator.EvalSpec": {
            "input_fn": "source",
        },
    },
    "BestExport": {
        "export.BestExporter": {
            "serving_input_receiver_fn": "receiver",
            "calibration": "calibrate",
            "compare_fn": "metric",
            "assets_extra": "assets",
            "exports_to_keep": "keep",
        },
    },
    "LatestExport": {
        "export.LatestExporter": {
            "serving_input_receiver_fn": "receiver",
            "calibration": "calibrate",
            "assets_extra": "assets",
            "exports_to_keep": "keep",
        },
    },
    "FinalExport": {
        "export.FinalExporter": {
            "serving_input_receiver_fn": "receiver",
            "calibration": "calibrate",
            "assets_extra": "assets",
        },
    },
}
# Why arguments of all functions of a package have no key, or where they are said.
COMMON = {
    "estimator": {
        "model_dir": "`run.model_dir`",
    },
    "input": {
        "dtypes": "the types of the features",
        "defaults": "`features.<name>.default`",
    },
    "canned": {
        "head": "`model.head`",
        "model_dir": "`run.model_dir`",
        "config": "`run`",
        "warm_start_from": "`warm_start`",
        "weight_column": "`data.weight`",
        "n_batches_per_layer": "Python only: trees need no batches; accepted for "
        "programs of tf.estimator",
        "compat": "Python only: defaults of tf.compat.v1; a run file has defaults of "
        "its own",
        "optimizer": "`optimizers.dnn`",
    },
    "optimizers": {
        "lr": "Python only: an alias of learning_rate",
    },
    "hooks": {
        "clock": "Python only: for tests",
        "model_dir": "`run.model_dir`",
        "output_dir": "`run.model_dir`",
        "summary_writer": "Python only: an open writer",
        "scaffold": "Python only: of TensorFlow; must be None",
        "estimator": "the model of the run",
    },
    "export": {
        "as_text": "Python only: ignored",
    },
}
_TENSORFLOW = (
    "session_config",
    "train_distribute",
    "device_fn",
    "protocol",
    "eval_distribute",
    "experimental_distribute",
    "experimental_max_worker_delay_secs",
    "checkpoint_save_graph_def",
)
# The same of the arguments of one function.
REASONS = {
    "feature_columns.text_column": {"words": "those of the train source"},
    "feature_columns.date_difference_column": {"name": "the name of the feature"},
    "feature_columns.expression_column": {"name": "the name of the feature"},
    "estimator.RunConfig": {
        **dict.fromkeys(
            _TENSORFLOW, "Python only: of TensorFlow; has no effect or must be None"
        ),
        "tf_random_seed": "`seed`",
        "save_checkpoints_steps": "`run.save_checkpoints.every_steps`",
        "save_checkpoints_secs": "`run.save_checkpoints.every_secs`",
        "keep_checkpoint_max": "`run.save_checkpoints.keep_last`",
        "keep_checkpoint_every_n_hours": "`run.save_checkpoints.keep_every_hours`",
        "prefetch_batches": "`data.prefetch`",
        "compilation_cache_dir": "`run.compilation_cache`",
        "mesh": "Python only: a JAX object",
    },
    "input.csv_files": {
        "select": "the columns of the features, label and weight",
        "block_bytes": "Python only: does not change the rows",
    },
    "input.parquet_files": {
        "columns": "the columns of the features, label and weight",
    },
    "input.json_files": {
        "lists": "`features.<name>.many`, `shape` and `sequence`",
    },
    "input.TFRecordDataset": {
        "buffer_size": "Python only: does not change the rows",
    },
    "feature_columns.weighted_categorical_column": {
        "dtype": "Python only: weights are read as float32",
    },
    "canned.DNNLinearCombinedEstimator": {
        "linear_optimizer": "`optimizers.linear`",
        "dnn_optimizer": "`optimizers.dnn`",
    },
    "heads.RegressionHead": {
        "label_mean": "`normalize_label: true` computes it from the train source",
        "label_std": "`normalize_label: true` computes it from the train source",
    },
    "canned.TabularEstimator": {
        "train_steps": "`train.max_steps`",
    },
    "canned.LinearEstimator": {
        "optimizer": "`optimizers.linear`",
    },
    "canned.BaselineEstimator": {
        "optimizer": "`optimizers.baseline`",
    },
    "heads.SequentialHeadWrapper": {
        "feature_columns": "Python only: for heads with weights of each step",
    },
    "canned.RNNEstimator": {
        "optimizer": "`optimizers.rnn`",
    },
    "estimator.Estimator": {
        "config": "`run`",
        "warm_start_from": "`warm_start`",
    },
    "optimizers.cosine_decay": {
        "warmup_target": "`initial`, if there are `warmup_steps`",
    },
    "estimator.TrainSpec": {
        "saving_listeners": "Python only: Python objects",
    },
    "hooks.SummarySaverHook": {
        "summary_op": "Python only: of TensorFlow; must be None",
    },
    "hooks.GlobalStepWaiterHook": {
        "sleep": "Python only: for tests",
    },
    "hooks.CheckpointSaverHook": {
        "saver": "Python only: of TensorFlow; must be None",
        "listeners": "Python only: Python objects; name a hook of your own with "
        "`class`",
    },
    "estimator.EvalSpec": {
        "exporters": "`export`",
    },
    "export.BestExporter": {
        "event_file_pattern": "Python only: ignored",
    },
    "serving.ServerConfig": {
        "models": "`serving.export` and `serving.model_name`",
        "model_config_file": "Python only: a file of models, instead of a run",
        "model_config_poll_seconds": "Python only: of a file of models, instead of a "
        "run",
        "reuse_port": "Python only: set by --workers",
    },
    "serving.RestLimits": {
        "token": "Python only: a secret; pass a file with --token-file",
    },
    "feature_columns.categorical_column_with_vocabulary_list": {
        "dtype": "the words of `list`; text otherwise",
    },
    "feature_columns.sequence_categorical_column_with_vocabulary_list": {
        "dtype": "the words of `list`; text otherwise",
    },
}
# Public names that no section describes, with the reason or with what to write.
OTHERWISE = {
    "canned": {
        "BaselineClassifier": "`model: {type: baseline}` with a classification head",
        "BaselineRegressor": "`model: {type: baseline}`, `head: {type: regression}`",
        "DNNClassifier": "`model: {type: dnn}` with a classification head",
        "DNNRegressor": "`model: {type: dnn}` with `head: {type: regression}`",
        "DNNLinearCombinedClassifier": "`model: {type: dnn_linear_combined}`",
        "DNNLinearCombinedRegressor": "`model: {type: dnn_linear_combined}`",
        "LinearClassifier": "`model: {type: linear}` with a classification head",
        "LinearRegressor": "`model: {type: linear}` with `head: {type: regression}`",
        "TabularClassifier": "`model: {type: tabular}` with a classification head",
        "TabularRegressor": "`model: {type: tabular}`, `head: {type: regression}`",
        "BoostedTreesClassifier": "`model: {type: boosted_trees}` with a "
        "classification head",
        "BoostedTreesRegressor": "`model: {type: boosted_trees}`, `head: {type: "
        "regression}`",
        "RandomForestClassifier": "`model: {type: random_forest}` with a "
        "classification head",
        "RandomForestRegressor": "`model: {type: random_forest}`, `head: {type: "
        "regression}`",
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
        "quantile_boundaries": "`boundaries: {bins: ...}` of `piecewise_linear`",
        "text_vocabulary": "`… min_count` and `… max_size` of `text`",
        "k_means_boundaries": "`boundaries: {k_means: ...}` of `bucketized`",
        "tabular_columns": "`model: {type: tabular}` makes its columns",
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


@dataclass(frozen=True)
class Described:
    """A public function or class, and the section of a run file that stands for it.

    Args:
      section: The section.
      path: The public path without `estimax.`, such as "optimizers.Adam".
      renamed: The keys of arguments that have another name in a run file.
    """

    section: type
    path: str
    renamed: dict[str, str]

    def said(self) -> dict[str, str | None]:
        """Return how a run file says each argument; None if it does not."""
        package = self.path.partition(".")[0]
        reasons = {**COMMON.get(package, {}), **REASONS.get(self.path, {})}
        own = REASONS.get(self.path, {})
        found: dict[str, str | None] = {}
        for argument in arguments_of(self.path):
            if argument in self.renamed and argument not in own:
                found[argument] = f"`… {self.renamed[argument]}`"
            elif argument in reasons:
                found[argument] = reasons[argument]
            elif argument in fields_of(self.section):
                found[argument] = f"`… {argument}`"
            else:
                found[argument] = None
        return found


def described() -> Iterator[Described]:
    """Yield every public function that a section of a run file stands for."""
    seen: set[type] = set()
    for _, section in sections_of(Run):
        if section in seen:
            continue
        seen.add(section)
        if section.__name__ in KEYS:
            for path, renamed in KEYS[section.__name__].items():
                yield Described(section, path, renamed)
        elif hasattr(section, "CALLS"):
            target = section.CALLS
            renamed = {argument: key for key, argument in target.renamed.items()}
            yield Described(section, target.path.removeprefix("estimax."), renamed)


def arguments_of(path: str) -> dict[str, object]:
    """Return the defaults of the arguments of a public function, by name."""
    package, name = path.split(".")
    function = getattr(importlib.import_module(f"estimax.{package}"), name)
    found: dict[str, object] = {}
    for argument in inspect.signature(function).parameters.values():
        if argument.kind is not argument.VAR_KEYWORD:
            found[argument.name] = argument.default
            continue
        # `**options: Unpack[Options]`: the keys of a TypedDict, none of them required.
        hint = typing.get_type_hints(function).get(argument.name)
        for options in typing.get_args(hint):
            found |= dict.fromkeys(options.__annotations__)
    return found


def make_table() -> str:
    """Return the page of the documentation that lists every option."""
    lines = [
        "# Run files and Python",
        "",
        "Every option of the public classes and functions, and how a run file says it.",
        "This page is written by `scripts/run_file_parity.py`; a test compares it with",
        "the signatures. `…` stands for the section that describes the object.",
        "",
    ]
    for package, rows in sorted(_rows().items()):
        lines += [f"## `ex.{package}`", "", "| Python | run file |", "|---|---|"]
        lines += [f"| `{name}` | {said} |" for name, said in rows]
        lines.append("")
    return "\n".join(lines)


def _rows() -> dict[str, list[tuple[str, str]]]:
    rows: dict[str, list[tuple[str, str]]] = {}
    for one in described():
        package, name = one.path.split(".")
        mine = rows.setdefault(package, [])
        mine.append((name, _address(one.section)))
        mine += [(f"{name}({a})", said) for a, said in one.said().items() if said]
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
    places = [place for place, found in sections_of(Run) if found is section]
    return f"`{places[0]}`{text}" if places else text.removeprefix(", ")


def sections_of(section: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield the address of every section below a section, with the section."""
    for here, found in sections_below(section, path):
        yield here, found
        yield from sections_of(found, here)


if __name__ == "__main__":
    print(make_table(), end="")
