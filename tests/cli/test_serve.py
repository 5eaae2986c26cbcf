"""`estimax serve run.yaml` serves the export of a run as its `serving` section says."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from estimax.cli.serve import BatchingOptions, _config
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


def config_of(path, *, model_name=None, token=None, batching=None, **settings):
    batching = batching or BatchingOptions()
    rest = {"timeout": settings.pop("timeout", None)}
    return _config([str(path)], model_name, token, batching, rest, settings, None)


@pytest.fixture
def path(run_file):
    (run_file.parent / "model" / "export" / "best").mkdir(parents=True)
    return served(run_file, SERVING)


def test_the_section_and_the_first_export_are_served(path):
    config = config_of(path, token="secret", host=None)
    (model,) = config.models
    folder = path.parent / "model" / "export" / "best"
    assert (model.name, Path(model.base_path)) == ("shop", folder.resolve())
    assert (config.rest_port, config.grpc_port) == (0, 8500)
    assert config.poll_seconds == 10.0
    assert config.batching.batch_sizes == (1, 8)
    assert config.rest.token == "secret"


def test_options_win_over_the_run_file(path):
    config = config_of(
        path,
        model_name="other",
        batching=BatchingOptions(batch_sizes="1,2", is_enabled=False),
        host="127.0.0.1",
        rest_port=8080,
        ssl_key="key.pem",
        ssl_certificate="certificate.pem",
        timeout=2.0,
    )
    assert (config.host, config.rest_port) == ("127.0.0.1", 8080)
    assert (config.ssl_key, config.rest.timeout) == ("key.pem", 2.0)
    assert config.models[0].name == "other"
    assert (config.batching.batch_sizes, config.batching.is_enabled) == ((1, 2), False)
    # What no option says stays as the file has it.
    assert (config.batching.timeout_micros, config.poll_seconds) == (500, 10.0)


def test_a_run_file_and_a_file_of_models_are_refused(path):
    with pytest.raises(ConfigError, match="found both"):
        config_of(path, model_config_file="models.config")


def test_a_run_without_a_bundle_is_refused(run_file):
    path = served(run_file, SERVING)
    with pytest.raises(ConfigError, match="expected a bundle"):
        config_of(path)
    with pytest.raises(ConfigError, match="the run exports no bundle to serve"):
        config_of(served(run_file, ""))


def invoked(*arguments):
    from estimax.cli.main import app

    done = CliRunner().invoke(app, ["serve", *arguments])
    assert isinstance(done.exception, ConfigError), done.output
    return str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rest-api-port", "99999"), "rest_port: expected a port from 0 to 65535"),
        (("--port", "-1"), "grpc_port: expected a port from 0 to 65535"),
        (("--port", "8501"), "are both 8501"),
        (("--workers", "-3"), "--workers: expected at least 1, found -3"),
        (("--model_base_path", "shop://a/m"), "no installed package reads shop://"),
        (("--max-connections", "0"), "expected max_connections of at least 1"),
        (("--ssl-client-ca", "ca.pem"), "ssl_client_ca needs ssl_key"),
    ],
)
def test_values_that_cannot_be_served_are_refused(tmp_path, arguments, words):
    models = () if "--model_base_path" in arguments else (f"m={tmp_path}",)
    assert words in invoked(*models, *arguments)


def test_two_models_of_one_name_are_refused(tmp_path):
    told = invoked(f"m={tmp_path}", f"m={tmp_path}")
    assert "two models are both called 'm'" in told


def test_a_bad_key_is_refused_before_models_are_loaded(tmp_path):
    (tmp_path / "key.pem").write_text("no key")
    files = ("--ssl-key", str(tmp_path / "key.pem"))
    told = invoked(f"m={tmp_path}", *files, "--ssl-certificate", "none.pem")
    assert "ssl_certificate: none.pem cannot be read" in told
    told = invoked(f"m={tmp_path}", *files, "--ssl-certificate", files[1])
    assert "expected a private key and its certificate as PEM" in told
