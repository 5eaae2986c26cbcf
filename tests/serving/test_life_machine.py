"""The life of models as a state machine: whatever happens, all answers agree.

Versions appear, vanish, return and are damaged; loads fail, hang and are tried again;
storage fails for a while; policies, labels and folders change; requests hold versions.
After each event the status, the health of both protocols, the metrics and the answers
agree with each other and with the rules that `expected` states.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)
from serving.bundles import export_clicks, logit
from serving.test_server import ROW, predict_request

from estimax.serving.batching import Scheduler
from estimax.serving.config import BatchingConfig, ModelConfig, VersionPolicy
from estimax.serving.grpc_api import GrpcApi
from estimax.serving.health import Health
from estimax.serving.inference import InferenceService
from estimax.serving.lifecycle import VersionState
from estimax.serving.manager import ModelManager
from estimax.serving.metrics import ServerMetrics, text_of
from estimax.serving.protos import message, request_message
from estimax.serving.rest import RestApp
from estimax.serving.status import ServingError
from estimax.serving.versions import load_version

FOLDERS = st.sampled_from(["x", "y"])
NUMBERS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b"])
BIASES = (0.0, -3.0)  # of even and odd versions, so that answers tell them apart
KIND_NAMES = "good", "damaged", "gone", "damaged manifest", "unreadable", "incomplete"
KINDS = st.sampled_from(KIND_NAMES)
LABEL_NAMES = ("stable", "canary")
POLICIES = st.one_of(
    st.builds(lambda n: VersionPolicy(count=n), st.integers(1, 2)),
    st.just(VersionPolicy("all")),
    st.builds(
        lambda found: VersionPolicy("specific", versions=tuple(sorted(found))),
        st.sets(NUMBERS, min_size=1, max_size=2),
    ),
)
LABELS = st.dictionaries(st.sampled_from(LABEL_NAMES), NUMBERS, max_size=1)
CONFIGS = st.dictionaries(NAMES, st.tuples(FOLDERS, POLICIES, LABELS), min_size=1)
RARELY = st.sampled_from([False, False, False, True])
WRITES = st.tuples(st.just("write"), FOLDERS, NUMBERS, KINDS)
EVENTS = st.one_of(
    WRITES,
    WRITES,  # twice as often
    st.tuples(st.just("reload"), CONFIGS),
    st.tuples(st.just("hang"), FOLDERS, NUMBERS, RARELY),
    st.tuples(st.just("lose_storage"), FOLDERS, RARELY),
    st.tuples(st.just("begin_request"), NAMES),
    st.tuples(st.just("end_request"), st.integers(0, 3)),
)
BATCHING = BatchingConfig(batch_sizes=(1,), threads=1)


class Life(RuleBasedStateMachine):
    """Two folders of versions, and up to two models that are served from them."""

    def __init__(self, bundles: list[Path]):
        super().__init__()
        self._bundles = bundles
        self._made = tempfile.TemporaryDirectory()
        self.root = Path(self._made.name)
        self.disk: dict[str, dict[int, str]] = {"x": {}, "y": {}}
        self.is_away = {"x": False, "y": False}
        self.hung: dict[Path, threading.Event] = {}
        self.held: list = []
        self.now = 0.0
        for folder in self.disk:
            (self.root / folder).mkdir()
        self.scheduler = Scheduler(1)
        self.configs = {
            name: ModelConfig(name, str(self.root / folder))
            for name, folder in (("a", "x"), ("b", "y"))
        }
        self.manager = ModelManager(
            list(self.configs.values()),
            self._load,
            retries=1,
            retry_seconds=60.0,
            load_seconds=100.0,
            load_threads=16,
            clock=lambda: self.now,
        )
        self.runner = asyncio.Runner()
        self.runner.run(self._open())
        for folder in self.disk:
            self.write(folder, 1, "good")

    async def _open(self) -> None:
        service = InferenceService(self.manager)
        self.metrics = ServerMetrics()
        self.rest = RestApp(service, self.metrics)
        self.grpc = GrpcApi(service)
        self.health = Health(self.manager)

    def _load(self, path, is_serving, stop):
        if path in self.hung:
            self.hung[path].wait()
        return load_version(path, BATCHING, self.scheduler, stop.check)

    def teardown(self):
        for event in self.hung.values():
            event.set()
        for context, *_ in self.held:
            context.__exit__(None, None, None)
        assert self.manager.close(timeout=60)
        assert not self.scheduler._queues  # everything is freed
        self.scheduler.close()
        self.runner.close()
        self._made.cleanup()

    # One rule for all events: of several rules, hypothesis leaves most out of a run.
    @rule(event=EVENTS)
    def happen(self, event):
        name, *arguments = event
        if name == "reload":
            self.reload(**arguments[0])
        else:
            getattr(self, name)(*arguments)

    # What happens on disk.

    def _folder(self, folder: str) -> Path:
        return self.root / (f"{folder}.away" if self.is_away[folder] else folder)

    def write(self, folder, number, kind):
        """A version appears, is replaced, damaged or repaired, or vanishes."""
        target = self._folder(folder) / str(number)
        made = self.root / "temporary"
        shutil.copytree(self._bundles[number % 2], made)
        _damage(made, kind)
        shutil.rmtree(target, ignore_errors=True)
        self.disk[folder].pop(number, None)
        if kind == "gone":
            shutil.rmtree(made)
        else:
            made.rename(target)
        if kind not in ("gone", "incomplete"):
            self.disk[folder][number] = kind
        self.settle_and_check()

    def lose_storage(self, folder, is_away):
        """The storage of a folder fails, or is back."""
        base, away = self.root / folder, self.root / f"{folder}.away"
        if self.is_away[folder] and not is_away:
            base.unlink()
            away.rename(base)
        elif is_away and not self.is_away[folder]:
            base.rename(away)
            os.symlink(base, base)
        self.is_away[folder] = is_away
        self.settle_and_check()

    # What happens to loads, requests and time.

    def hang(self, folder, number, is_hung):
        """Loads of a folder hang from now on, or no longer."""
        path = self.root / folder / str(number)
        if is_hung:
            self.hung.setdefault(path, threading.Event())
        elif path in self.hung:
            self.hung.pop(path).set()
        self.settle_and_check()

    def begin_request(self, name):
        context = self.manager.acquire(name)
        try:
            served = context.__enter__()
        except ServingError:
            return
        self.held.append((context, served.loaded))

    def end_request(self, which):
        if self.held:
            context, _ = self.held.pop(which % len(self.held))
            context.__exit__(None, None, None)
            self.settle_and_check()

    # What is asked for.

    def reload(self, **configs):
        given = {
            name: ModelConfig(name, str(self.root / folder), policy, labels)
            for name, (folder, policy, labels) in configs.items()
        }
        before = self.loaded()
        verdicts = [self._can_serve(config, before) for config in given.values()]
        is_waiting = any(verdict == "hangs" for verdict in verdicts)
        try:
            self.manager.reload(list(given.values()), 0.02 if is_waiting else 120)
        except ServingError:
            assert any(verdict != "yes" for verdict in verdicts)
        else:
            assert all(verdict == "yes" for verdict in verdicts)
            assert self.manager.is_ready()  # at once
            kept = {
                name
                for name, config in given.items()
                if name in self.configs
                and self.configs[name].base_path == config.base_path
            }
            before = {n: found for n, found in before.items() if n in kept}
            self.configs = given
        found = {name: model.config for name, model in self.manager.models().items()}
        assert found == self.configs
        self.settle_and_check(before)

    def _can_serve(self, config: ModelConfig, loaded) -> str:
        """Return whether a reload to this configuration is to succeed."""
        now = self.configs.get(config.name)
        if now is None or now.base_path != config.base_path:
            now, ready, own = None, set(), set()
        else:
            ready, own = self.available(config.name), loaded[config.name]
        wanted = set(self.wanted(config))
        if now is not None and ready and now.version_policy == config.version_policy:
            return "yes" if _labels_may_move(now, config, ready, ready) else "no"
        folder = Path(config.base_path).name
        policy = config.version_policy
        missing = set(policy.versions) - self.disk[folder].keys()
        if self.is_away[folder] or not wanted:
            return "no"
        if policy.kind == "specific" and missing:
            return "no"
        if now is not None and not _labels_may_move(now, config, ready, wanted):
            return "no"
        loads = [self._loads(config, number) for number in wanted - own]
        return "hangs" if "hangs" in loads else "no" if "no" in loads else "yes"

    def _loads(self, config: ModelConfig, number: int) -> str:
        base = Path(config.base_path)
        if base / str(number) in self.hung:
            return "hangs"
        return "yes" if self.disk[base.name][number] == "good" else "no"

    # What is expected.

    def wanted(self, config: ModelConfig) -> list[int]:
        found = self.disk[Path(config.base_path).name]
        return config.version_policy.choose(list(found))

    def available(self, name) -> set[int]:
        return {v.number for v in self.manager.models()[name].available()}

    def loaded(self) -> dict[str, set[int]]:
        return {
            name: {n for n, v in model.versions.items() if v.loaded is not None}
            for name, model in self.manager.models().items()
        }

    def expected(self, config: ModelConfig, ready, loaded) -> set[int]:
        """Return the versions of a model that answer, from those of before."""
        if self.is_away[Path(config.base_path).name]:
            return ready  # nothing is unloaded, and nothing can be loaded
        wanted = self.wanted(config)
        able = {n for n in wanted if n in loaded or self._loads(config, n) == "yes"}
        return able or ready

    def settle_and_check(self, loaded=None):
        if loaded is None:
            loaded = self.loaded()
        ready = {name: self.available(name) for name in self.configs}
        self.settle()
        for name, config in self.configs.items():
            own = loaded.get(name, set())
            expected = self.expected(config, ready[name], own)
            assert self.available(name) == expected, name
            error = self.manager.models()[name].listing_error
            folder = Path(config.base_path).name
            assert (error is not None) == self.is_away[folder]
        self.runner.run(self._check_answers())
        self._check_memory()

    def settle(self):
        """Poll until nothing changes any more but what hangs."""
        last = None
        while (seen := self._states()) != last:
            last = seen
            self.now += 61.0  # try again what failed
            for _ in range(2):
                self.manager.poll()
                self._wait_for_loads()

    def _wait_for_loads(self):
        deadline = time.monotonic() + 120
        while self.manager.loading() - self.hung.keys():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def _states(self):
        return {
            (name, v.number, v.state, v.failures, v.loaded is None)
            for name, model in self.manager.models().items()
            for v in model.versions.values()
        }

    # All that a client can see agrees.

    async def _check_answers(self):
        metrics = text_of(self.metrics.families(self.manager))
        ready = {}
        for name in self.configs:
            rows = await self._status(name)
            for number, (state, code) in rows.items():
                of = f'{{model_name="{name}",version="{number}"}}'
                line = f"estimax_model_state{of} {float(VersionState[state])}"
                assert line in metrics.splitlines()
                if state in ("START", "LOADING"):
                    path = Path(self.configs[name].base_path) / str(number)
                    assert code != "OK" or path in self.hung
            numbers = {n for n, (state, _) in rows.items() if state == "AVAILABLE"}
            ready[name] = bool(numbers)
            await self._check_model(name, numbers)
        assert await self._serves("") == all(ready.values())
        status, _ = await self._rest("GET", "/readyz")
        assert status == (200 if all(ready.values()) else 503)
        for name, is_ready in ready.items():
            assert await self._serves(name) == is_ready
        for name in {"a", "b"} - self.configs.keys():
            assert self.health.status(name) == (
                health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            )
            assert (await self._predict(f"/v1/models/{name}"))[0] == 404

    async def _status(self, name) -> dict[int, tuple[str, str]]:
        """Return state and error of each version; both protocols must agree."""
        request = message("GetModelStatusRequest")()
        request.model_spec.name = name
        found = await self.grpc.get_model_status(request, None)
        rows = {
            row.version: (VersionState(row.state).name, row.status.error_message)
            for row in found.model_version_status
        }
        _, body = await self._rest("GET", f"/v1/models/{name}")
        parsed = json.loads(body)["model_version_status"]
        assert rows == {
            int(row["version"]): (row["state"], row["status"]["error_message"])
            for row in parsed
        }
        return {
            int(row["version"]): (row["state"], row["status"]["error_code"])
            for row in parsed
        }

    async def _check_model(self, name, numbers):
        status, answer = await self._predict(f"/v1/models/{name}")
        assert status == (200 if numbers else 404)
        if numbers:
            assert answer == pytest.approx(_score(max(numbers)), abs=1e-4)
            request = predict_request()
            request.model_spec.name = name
            sent = request_message("PredictRequest").FromString(
                request.SerializeToString()
            )
            data = await self.grpc.predict(sent, None)
            response = message("PredictResponse").FromString(data)
            assert response.model_spec.version.value == max(numbers)
        for number in range(1, 4):
            path = f"/v1/models/{name}/versions/{number}"
            status, answer = await self._predict(path)
            assert status == (200 if number in numbers else 404)
            if status == 200:
                assert answer == pytest.approx(_score(number), abs=1e-4)
        for label, number in self.configs[name].version_labels.items():
            status, answer = await self._predict(f"/v1/models/{name}/labels/{label}")
            assert status == (200 if number in numbers else 404)
            if status == 200:
                assert answer == pytest.approx(_score(number), abs=1e-4)

    async def _serves(self, service) -> bool:
        request = health_pb2.HealthCheckRequest(service=service)
        found = await self.health.Check(request, None)
        return found.status == health_pb2.HealthCheckResponse.SERVING

    async def _predict(self, path):
        body = json.dumps({"instances": [ROW]}).encode()
        status, body = await self._rest("POST", f"{path}:predict", body)
        if status != 200:
            return status, None
        return status, json.loads(body)["predictions"][0]["scores"][1]

    async def _rest(self, method, path, body=b""):
        sent = []

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(event):
            sent.append(event)

        scope = {"type": "http", "method": method, "path": path, "headers": []}
        await self.rest({**scope, "query_string": b""}, receive, send)
        return sent[0]["status"], sent[1]["body"]

    def _check_memory(self):
        """A version is loaded as long as it answers or a request holds it."""
        needed = {id(loaded) for _, loaded in self.held}
        for model in self.manager.models().values():
            for version in model.versions.values():
                if version.loaded is not None:
                    assert version.state in (
                        VersionState.AVAILABLE,
                        VersionState.UNLOADING,
                    )
                    needed.add(id(version.loaded))
        assert len(self.scheduler._queues) == len(needed)


def _damage(folder: Path, kind: str) -> None:
    manifest = folder / "manifest.json"
    if kind == "damaged":
        (folder / "signatures.json").write_text("{}")
    elif kind == "damaged manifest":
        manifest.write_text("{}")
    elif kind == "unreadable":
        manifest.unlink()
        os.symlink("manifest.json", manifest)  # a link to itself
    elif kind == "incomplete":
        manifest.unlink()  # still being copied


def _labels_may_move(now, config, ready, served) -> bool:
    for label, number in config.version_labels.items():
        before = now.version_labels.get(label)
        if before in ready and number not in (before, *served):
            return False
    return True


def _score(number: int) -> float:
    """Return the answer of a version for `ROW`."""
    value = logit(ROW["age"], ROW["hours"], len(ROW["tags"])) + BIASES[number % 2]
    return float(1 / (1 + np.exp(-value)))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    return [export_clicks(folder / str(bias), bias=bias) for bias in BIASES]


def run_machine(bundles, **options):
    run_state_machine_as_test(
        lambda: Life(bundles),
        settings=settings(
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


def run_random_events(bundles, seed, count):
    """Run a walk whose events are independent of each other.

    hypothesis shrinks what fails, but its examples are variations of a few: in 900 of
    its events, a damaged version that was wanted was never repaired.
    """
    chosen = random.Random(seed)
    life = Life(bundles)
    for _ in range(count):
        event = random_event(chosen)
        try:
            life.happen(event)
        except BaseException:
            print("after", event)
            raise
    life.teardown()


def random_event(chosen):
    one = chosen.choice
    folder, number = one("xy"), one((1, 2, 3))
    numbers = tuple(sorted(chosen.sample((1, 2, 3), one((1, 2)))))
    policies = [
        VersionPolicy(count=one((1, 2))),
        VersionPolicy("all"),
        VersionPolicy("specific", versions=numbers),
    ]
    names = chosen.sample("ab", one((1, 2)))
    configs = {
        name: (one("xy"), one(policies), one([{}, {one(LABEL_NAMES): number}]))
        for name in names
    }
    is_rare = one((False, False, False, True))
    write = "write", folder, number, one(("good", one(KIND_NAMES)))
    return one(
        [
            *(write, write, write),
            ("reload", configs),
            ("hang", folder, number, is_rare),
            ("lose_storage", folder, is_rare),
            ("begin_request", one("ab")),
            ("end_request", chosen.randrange(4)),
        ]
    )


def test_all_answers_agree_after_every_event(bundles):
    run_machine(bundles, max_examples=8, stateful_step_count=15)


def test_all_answers_agree_after_random_events(bundles):
    run_random_events(bundles, seed=0, count=150)


@pytest.mark.slow
def test_all_answers_agree_after_thousands_of_events(bundles):
    run_machine(bundles, max_examples=400, stateful_step_count=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_all_answers_agree_after_many_random_events(bundles, seed):
    run_random_events(bundles, seed, count=500)
