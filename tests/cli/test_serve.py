"""`estimax serve run.yaml` serves the export of a run as its `serving` section says."""

from pathlib import Path

import pytest

from estimax.cli.serve import _config_of
from estimax.core.errors import ConfigError

SERVING = """\
export: [{type: best, metric: auc}, {type: final}]
serving:
  model_name: shop
  rest_port: 0
  poll_seconds: 10
  batching: {batch_sizes: [1, 8], timeout_micros: 500}
"""


def served(run_file, section):
    text = run_file.read_text()
    text = text[: text.index("export:")] if "export:" in text else text
    run_file.write_text(text + section)
    return run_file


def test_the_section_and_the_first_export_are_served(run_file):
    path = served(run_file, SERVING)
    folder = path.parent / "model" / "export" / "best"
    folder.mkdir(parents=True)
    config = _config_of(str(path), token="secret")
    (model,) = config.models
    assert (model.name, Path(model.base_path)) == ("shop", folder.resolve())
    assert (config.rest_port, config.grpc_port) == (0, 8500)
    assert config.poll_seconds == 10.0
    assert config.batching.batch_sizes == (1, 8)
    assert config.rest.token == "secret"


def test_a_run_without_a_bundle_is_refused(run_file):
    path = served(run_file, SERVING)
    with pytest.raises(ConfigError, match="expected a bundle"):
        _config_of(str(path), token=None)
    with pytest.raises(ConfigError, match="the run exports no bundle to serve"):
        _config_of(str(served(run_file, "")), token=None)
