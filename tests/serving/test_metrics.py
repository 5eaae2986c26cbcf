"""What the server counts, and how Prometheus reads it."""

import json
import re
import shutil
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving.bundles import export_clicks
from serving.servers import running_server

from estimax.serving.config import ModelConfig
from estimax.serving.lifecycle import ServedModel, Version, VersionState
from estimax.serving.manager import ModelManager
from estimax.serving.metric_families import (
    Family,
    Sample,
    families_from_json,
    families_to_json,
    lasting,
    merge,
)
from estimax.serving.metrics import Observed, ServerMetrics, text_of, totals_of
from estimax.serving.status import Code

ROOT = Path(__file__).parents[2]
TF = ":tensorflow:serving:"
ROW = {"age": 1.5, "hours": 2, "city": "Oslo", "tags": ["a"]}


def observed(**change):
    values = {
        **{"model": "ctr", "version": 7, "signature": "predict", "method": "predict"},
        **{"entry": "REST", "code": Code.OK, "rows": 64, "seconds": 0.25},
    }
    return Observed(**{**values, **change})


def no_models():
    return ModelManager([], load=None)


def values(text):
    """Return the values by name and labels; no label here has a quote or a comma."""
    list(text_string_to_metric_families(text))  # it is valid
    found = {}
    for name, labels, value in re.findall(
        r"^([\w:]+)(?:{(.*)})? (\S+)$", text, re.MULTILINE
    ):
        pairs = re.findall(r'(\w+)="([^"]*)"', labels)
        found[name, frozenset(pairs)] = float(value)
    return found


def test_names_and_units_are_tensorflow_servings():
    metrics = ServerMetrics()
    metrics.observe(observed(seconds=123456.789012))
    text = text_of(metrics.families(no_models()))
    assert f"# TYPE {TF}request_count counter" in text
    assert f'{TF}request_count{{model_name="ctr",status="OK"}} 1.0' in text
    assert f'{TF}request_example_count_total{{model="ctr"}} 64.0' in text
    # All digits of a sum, which grows for a year.
    labels = {("model_name", "ctr"), ("API", "predict"), ("entrypoint", "REST")}
    found = values(text)[f"{TF}request_latency_sum", frozenset(labels)]
    assert found == 123456789012.0
    assert "_created" not in text


def test_versions_are_counted_apart_and_forgotten_with_the_version():
    metrics, manager = ServerMetrics(), no_models()
    model = ServedModel(ModelConfig("ctr", "/models/ctr"))
    model.versions = {n: Version(n, Path(f"/models/ctr/{n}")) for n in (7, 8)}
    manager._models = {"ctr": model}
    for version in (7, 8, 8):
        metrics.observe(observed(version=version))
        metrics.observe_batch("ctr", version, 64, [0.001, 0.002], 0.003)
    found = values(text_of(metrics.families(manager)))

    def count(version, name="estimax_rows_total"):
        labels = {("model_name", "ctr"), ("version", str(version))}
        return found.get((name, frozenset(labels)))

    assert (count(7), count(8)) == (64, 128)
    assert count(8, "estimax_queue_seconds_count") == 4
    assert count(8, "estimax_run_seconds_count") == 2
    del model.versions[7]
    found = values(text_of(metrics.families(manager)))
    assert (count(7), count(8)) == (None, 128)
    total = ("model_name", "ctr"), ("status", "OK")
    assert found[f"{TF}request_count", frozenset(total)] == 3


def test_an_error_has_no_latency():
    metrics = ServerMetrics()
    metrics.observe(observed(model="", version=None, code=Code.INVALID_ARGUMENT))
    text = text_of(metrics.families(no_models()))
    assert 'status="INVALID_ARGUMENT"} 1.0' in text
    assert f"{TF}request_latency_count" not in text
    families = metrics.families(no_models())
    assert totals_of(families)[""]["errors"] == 1


def families(value, version="1", kind="counter"):
    labels = {"model_name": "ctr", "version": version}
    return [Family("rows", "Rows.", kind, [Sample("rows_total", labels, value)])]


def test_metrics_of_processes_are_added_up():
    sent = families_from_json(json.loads(json.dumps(families_to_json(families(2)))))
    (merged,) = merge([sent, families(3)])
    assert [sample.value for sample in merged.samples] == [5]


def test_an_ended_process_still_counts_until_its_version_is_gone():
    assert lasting(families(2), [families(3)]) == families(2)
    (left,) = lasting(families(2), [families(3, version="2")])
    assert left.samples == []
    assert lasting(families(2, kind="gauge"), [families(3)]) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metrics")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "7")
    (folder / "token").write_text("secret")
    (folder / "monitoring.txt").write_text(
        'prometheus_config { enable: true path: "/metrics" }'
    )
    arguments = (f"clicks={folder / 'clicks'}", "--batch-sizes", "1")
    arguments += ("--token-file", str(folder / "token"))
    arguments += ("--monitoring_config_file", str(folder / "monitoring.txt"))
    with running_server(folder, *arguments) as running:
        yield running


def ask(server, path, body, token="secret", **options):
    headers = {"Authorization": f"Bearer {token}"}
    return server.request(path, body, headers=headers, **options)[0]


def test_every_request_is_counted_and_every_metric_is_in_the_guide(server):
    predict = "/v1/models/clicks:predict"
    assert ask(server, predict, {"instances": [ROW]}) == 200
    assert ask(server, predict, b"{") == 400
    assert ask(server, predict, None, method="GET") == 400
    assert ask(server, "/v1/models/clicks:explain", b"{}") == 400
    assert ask(server, predict, {"instances": [ROW]}, token="wrong") == 401
    assert ask(server, "/v1/models/none:predict", {"instances": [ROW]}) == 404
    assert ask(server, "/monitoring/prometheus/metrics", None) == 404
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for sent in ((), (("authorization", "Bearer secret"),)):
            with pytest.raises(grpc.RpcError):
                run(b"\xff\xff", metadata=sent, timeout=60)
    headers = {"Authorization": "Bearer secret"}
    text = server.request("/metrics", headers=headers)[1].decode()
    found = values(text)

    def count(model, status):
        labels = {("model_name", model), ("status", status)}
        return found.get((f"{TF}request_count", frozenset(labels)))

    assert count("clicks", "OK") == 1
    assert count("clicks", "INVALID_ARGUMENT") == 3
    assert count("clicks", "UNAUTHENTICATED") == 1
    assert count("", "NOT_FOUND") == 1
    assert count("", "UNAUTHENTICATED") == 1  # over gRPC
    assert count("", "INVALID_ARGUMENT") == 1
    assert found["estimax_rest_responses_total", frozenset({("code", "400")})] == 3
    assert found["process_open_fds", frozenset()] > 0
    labels = frozenset({("model_name", "clicks"), ("version", "7")})
    assert found["estimax_queue_seconds_count", labels] == 1
    assert found["estimax_run_seconds_count", labels] == 1
    assert any(name == f"{TF}model_warmup_latency_count" for name, _ in found)

    guide = (ROOT / "docs" / "guides" / "serving_metrics.md").read_text()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert not [name for name in names if f"`{name}`" not in guide]


def test_the_dashboard_asks_for_metrics_that_exist():
    guide = (ROOT / "docs" / "guides" / "serving_metrics.md").read_text()
    dashboard = json.loads((ROOT / "docs" / "assets" / "grafana.json").read_text())
    queries = [
        target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    assert len(queries) > 8
    for query in queries:
        for name in re.findall(r":tensorflow:[\w:]+|(?:estimax|process)_\w+", query):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert f"`{name}`" in guide or f"`{family}`" in guide, name


def test_only_the_last_ended_versions_keep_their_series():
    metrics, manager = ServerMetrics(), no_models()
    model = ServedModel(ModelConfig("ctr", "/models/ctr"))
    model.versions = {n: Version(n, Path(f"/models/ctr/{n}")) for n in range(1, 9)}
    for number in range(1, 8):
        model.versions[number].state = VersionState.END
    manager._models = {"ctr": model}
    for number in model.versions:
        metrics.observe(observed(version=number))
    text = text_of(metrics.families(manager))
    rows = re.findall(r'estimax_rows_total{model_name="ctr",version="(\d)"}', text)
    assert rows == ["5", "6", "7", "8"]
