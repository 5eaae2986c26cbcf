"""TF_CONFIG, and the settings that tf.estimator had and JAX has no use for."""

import json
import logging

import pytest

from estimax import RunConfig
from estimax.core.errors import ConfigError
from estimax.input import InputContext

JOBS = {
    "worker": ["w0:1", "w1:1", "w2:1"],
    "ps": ["p0:1", "p1:1"],
    "chief": ["c0:1"],
}


@pytest.fixture
def under(monkeypatch):
    """under(config) -> a RunConfig made with that TF_CONFIG."""

    def under(config, **settings):
        text = config if isinstance(config, str) else json.dumps(config)
        monkeypatch.setenv("TF_CONFIG", text)
        return RunConfig(**settings)

    return under


def told(config):
    return (
        config.is_chief,
        config.num_worker_replicas,
        config.num_ps_replicas,
        config.global_id_in_cluster,
        config.master,
    )


@pytest.mark.parametrize(
    ("task", "index", "expected"),
    [
        ("chief", 0, (True, 4, 2, 0, "grpc://c0:1")),
        ("worker", 0, (False, 4, 2, 1, "grpc://w0:1")),
        ("worker", "2", (False, 4, 2, 3, "grpc://w2:1")),
        ("evaluator", 0, (False, 0, 0, None, "")),
        ("evaluator", 7, (False, 0, 0, None, "")),
    ],
    ids=str,
)
def test_a_task_knows_its_place_in_the_cluster(under, task, index, expected):
    config = under({"cluster": JOBS, "task": {"type": task, "index": index}})
    assert told(config) == expected
    assert (config.task_type, config.task_id) == (task, int(index))
    spec = {} if task == "evaluator" else {job: tuple(a) for job, a in JOBS.items()}
    assert config.cluster_spec == spec


def test_without_a_cluster_the_process_is_by_itself(under):
    assert told(RunConfig()) == (True, 1, 0, 0, "")
    config = under({"session_master": "here", "eval_session_master": "there"})
    assert (config.master, config.evaluation_master) == ("here", "there")
    assert (config.task_type, config.task_id, config.cluster_spec) == ("worker", 0, {})
    assert config.service is None


def test_a_parameter_server_is_refused_with_the_reason(under):
    with pytest.raises(ConfigError, match="parameter server"):
        under({"cluster": JOBS, "task": {"type": "ps", "index": 1}})


def test_other_jobs_are_numbered_by_name_before_parameter_servers(under):
    jobs = {**JOBS, "astronaut": ["a:1"]}
    config = under({"cluster": jobs, "task": {"type": "worker", "index": 0}})
    assert config.global_id_in_cluster == 2


def test_a_master_is_a_chief_by_its_old_name(under):
    jobs = {"master": ["m:1"], "worker": ["w:1"]}
    config = under({"cluster": jobs, "task": {"type": "master", "index": 0}})
    assert told(config) == (True, 2, 0, 0, "grpc://m:1")


def test_a_cluster_of_one_address_runs_locally(under):
    config = under(
        {"cluster": {"chief": ["c:1"]}, "task": {"type": "chief", "index": 0}}
    )
    assert told(config) == (True, 1, 0, 0, "")


def test_the_evaluators_address_is_for_the_evaluator(under):
    given = {"cluster": JOBS, "eval_session_master": "there"}
    chief = under({**given, "task": {"type": "chief", "index": 0}})
    assert chief.evaluation_master == ""
    evaluator = under({**given, "task": {"type": "evaluator", "index": 0}})
    assert evaluator.evaluation_master == "there"


def chief_of(jobs, task_type="chief", index=0):
    return {"cluster": jobs, "task": {"type": task_type, "index": index}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ({"task": {"type": "chief", "index": 0}}, "task worker 0, got chief 0"),
        ({"task": {"index": 1}}, "task worker 0, got worker 1"),
        ({"cluster": JOBS}, "needs a type and an index"),
        ({"cluster": JOBS, "task": {"type": "chief"}}, "needs a type and an index"),
        ({"cluster": {"chief": "a:1"}}, "list of addresses"),
        (chief_of({"worker": ["w:1"]}, "worker"), "exactly one chief, got 0"),
        (chief_of({"chief": ["a:1", "b:1"]}), "exactly one chief, got 2"),
        (chief_of(JOBS, "worker", 3), "index 3 is out of range"),
        (chief_of(JOBS, "worker", -1), "index must be 0 or more"),
        (chief_of(JOBS, "worker", "x"), "index must be 0 or more"),
        (chief_of(JOBS, "wroker"), "did you mean 'worker'"),
        (chief_of({"chief": ["a:1"], "master": ["b:1"]}), "the same role"),
        (chief_of({"master": ["b:1"]}, "evaluator"), "needs a chief"),
        ({"model_dir": ""}, "model_dir is empty"),
    ],
    ids=str,
)
def test_a_tf_config_that_cannot_be_meant_is_refused(under, given, words):
    with pytest.raises(ConfigError, match=words):
        under(given)


def test_a_service_must_be_an_object(under):
    with pytest.raises(TypeError, match="service"):
        under({"service": "x"})
    assert under({"service": {"a": 1}}).service == {"a": 1}


def test_the_model_dir_may_come_from_tf_config(under):
    assert under({"model_dir": "runs/a"}).model_dir == "runs/a"
    assert under({"model_dir": "runs/a"}, model_dir="runs/a").model_dir == "runs/a"
    with pytest.raises(ConfigError, match="Give one of them"):
        under({"model_dir": "runs/a"}, model_dir="runs/b")


def test_a_replaced_config_keeps_its_place_in_the_cluster(under, monkeypatch):
    config = under(chief_of(JOBS, "worker", 1))
    monkeypatch.delenv("TF_CONFIG")
    assert config.replace(tf_random_seed=3).global_id_in_cluster == 2


@pytest.mark.parametrize(
    "name",
    [
        "session_config",
        "train_distribute",
        "device_fn",
        "protocol",
        "eval_distribute",
        "experimental_distribute",
    ],
)
def test_settings_that_jax_cannot_honour_are_refused_with_advice(name):
    with pytest.raises(ConfigError, match=f"{name} cannot be used: .*"):
        RunConfig(**{name: object()})
    with pytest.raises(ConfigError, match=name):
        RunConfig().replace(**{name: object()})
    if name != "experimental_distribute":
        assert getattr(RunConfig(), name) is None


def test_settings_that_do_not_matter_are_taken_and_told_of(caplog):
    with caplog.at_level(logging.WARNING, "estimax"):
        RunConfig()
        assert not caplog.text
        RunConfig(session_creation_timeout_secs=60, checkpoint_save_graph_def=False)
    assert "session_creation_timeout_secs" not in caplog.text
    assert "checkpoint_save_graph_def=False has no effect" in caplog.text
    with pytest.raises(ConfigError, match="session_creation_timeout_secs"):
        RunConfig(session_creation_timeout_secs=0)


def test_positions_of_arguments_are_tf_estimators():
    config = RunConfig("runs/a", 1, 2, 3, None, None, 7, 8.0, 9)
    assert (config.keep_checkpoint_max, config.log_step_count_steps) == (7, 9)
    assert config.keep_checkpoint_every_n_hours == 8.0


def test_what_becomes_of_the_input_has_three_answers():
    assert RunConfig().resume_input == "exact"
    assert RunConfig(resume_input=False).resume_input == "restart"
    assert RunConfig(resume_input=True).resume_input == "exact"
    assert RunConfig(resume_input="refuse").resume_input == "refuse"
    with pytest.raises(ConfigError, match="did you mean 'refuse'"):
        RunConfig(resume_input="refuze")


def test_a_cluster_may_be_named_by_its_coordinator():
    given = {"coordinator": "10.0.0.1:4000", "processes": 3}
    chief = RunConfig(cluster={**given, "process": 0})
    assert (chief.task_type, chief.is_chief, chief.num_worker_replicas) == (
        "chief",
        True,
        3,
    )
    worker = RunConfig(cluster={**given, "process": 2})
    assert (worker.task_type, worker.task_id, worker.is_chief) == ("worker", 1, False)
    assert worker.global_id_in_cluster == 2
    assert worker.replace(tf_random_seed=1).task_id == 1
    alone = RunConfig(cluster={**given, "processes": 1, "process": 0})
    assert alone.connect() is None


def test_a_cluster_may_be_a_dict_like_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "not read")
    config = RunConfig(cluster=chief_of(JOBS, "worker", 1))
    assert told(config)[:2] == (False, 4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "must be a dict"),
        ("slrum", "did you mean 'slurm'"),
        ({"coordinator": "a:1"}, "lacks processes and process"),
        ({"coordinator": "a:1", "processes": 2, "process": 2}, r"in \[0, 2\), got 2"),
        ({"coordinator": "a:1", "processes": "2", "process": 0}, "whole numbers"),
        ({"coordinator": "a", "processes": 2, "process": 0}, "must be host:port"),
        ({"coordinator": "a:0", "processes": 2, "process": 0}, "must be host:port"),
        ({"coordinator": "a:1", "procesess": 2}, "did you mean 'processes'"),
        (chief_of({"chief": ["host"], "worker": ["w:1"]}), "must be host:port"),
    ],
    ids=str,
)
def test_a_cluster_that_cannot_be_meant_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        RunConfig(cluster=given)


def test_an_evaluator_in_the_cluster_does_not_shift_the_workers(under):
    jobs = {"chief": ["c:1"], "evaluator": ["e:1"], "worker": ["w:1", "x:1"]}
    config = under(chief_of(jobs, "worker", 1))
    assert config.global_id_in_cluster == 2
    assert InputContext.from_run_config(config) == InputContext(3, 2, 3)


@pytest.mark.parametrize("name", ["lost_after_secs", "session_creation_timeout_secs"])
def test_time_outs_are_seconds(name):
    assert getattr(RunConfig(**{name: 5}), name) == 5
    with pytest.raises(ConfigError, match=f"{name} must be >= 1"):
        RunConfig(**{name: 0})
