"""Files of models and of batching parameters."""

import pytest

from estimax.core.errors import ConfigError
from estimax.serving import (
    BatchingConfig,
    ModelConfig,
    VersionPolicy,
    read_batching_config,
    read_model_configs,
)

TEXT = """
# two models
model_config_list {
  config {
    name: 'ctr'
    base_path: "/models/ctr"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 3 versions: 5 } }
    version_labels { key: "stable" value: 3 }
  }
  config: { name: "rank", base_path: "/models/rank" }
}
"""


def test_the_text_format_of_tensorflow_serving_is_read(tmp_path):
    path = tmp_path / "models.config"
    path.write_text(TEXT)
    first, second = read_model_configs(path)
    specific = VersionPolicy("specific", versions=(3, 5))
    assert first == ModelConfig("ctr", "/models/ctr", specific, {"stable": 3})
    assert second.version_policy == VersionPolicy("latest", count=1)


def test_yaml_has_the_same_keys(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(
        """
        model_config_list:
          config:
            - name: ctr
              base_path: /models/ctr
              model_version_policy: {latest: {num_versions: 2}}
        """
    )
    (model,) = read_model_configs(path)
    assert model.version_policy.choose([1, 2, 3]) == [2, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_config_list { config { nam: 'a' } }", "nam"),
        ("", "expected a model_config_list"),
        ("model_config_list { config { name: 'a' } }", "base_path is missing"),
        ("model_config_list { config { name: 'a/b' base_path: '/m' } }", "'a/b'"),
        (
            "model_config_list { config { name: 'a' base_path: '/m' "
            "model_platform: 'torch' } }",
            "'torch'",
        ),
        (
            "model_config_list { config { name: 'a' base_path: '/m' } "
            "config { name: 'a' base_path: '/n' } }",
            "both called 'a'",
        ),
    ],
)
def test_a_bad_file_of_models_is_explained(tmp_path, text, words):
    path = tmp_path / "models.config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_model_configs(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.config"):
        read_model_configs(tmp_path / "none.config")


def test_batching_parameters_are_read(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text(
        "max_batch_size { value: 48 } batch_timeout_micros { value: 500 } "
        "num_batch_threads { value: 3 } allowed_batch_sizes: 16 allowed_batch_sizes: 48"
    )
    config = read_batching_config(path)
    assert (config.batch_sizes, config.timeout_micros, config.threads) == (
        (16, 48),
        500,
        3,
    )


def test_batch_sizes_without_a_list_are_powers_of_two_up_to_the_largest(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text("max_batch_size { value: 12 }")
    assert read_batching_config(path).batch_sizes == (1, 2, 4, 8, 12)


def test_the_last_allowed_batch_size_must_be_the_largest(tmp_path):
    path = tmp_path / "batching.txt"
    path.write_text("max_batch_size { value: 12 } allowed_batch_sizes: 8")
    with pytest.raises(ConfigError, match="must be max_batch_size, 12, found 8"):
        read_batching_config(path)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_sizes": ()},
        {"batch_sizes": (4, 2)},
        {"batch_sizes": (0, 2)},
        {"threads": 0},
        {"timeout_micros": -1},
    ],
)
def test_batching_options_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        BatchingConfig(**options)
