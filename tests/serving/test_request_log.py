"""The request log: whole lines, rotated, and no harm done by a full disk."""

import json
import logging
import os
import threading

import numpy as np
import pytest

from estimax.core.errors import ConfigError
from estimax.export import TensorInfo
from estimax.serving import request_log
from estimax.serving.inference import Answer
from estimax.serving.request_log import RequestLog
from estimax.serving.requests import FeatureReader, PendingRows
from estimax.staging.trace import Origin

ANSWER = Answer({"y": np.array([1.5], np.float32)}, "ctr", 7, "predict", 1)
COLUMNS = {"x": np.array([2.0])}


def test_a_request_is_one_line(tmp_path):
    log = RequestLog(str(tmp_path / "requests.jsonl"), 1.0)
    log.record(ANSWER, COLUMNS)
    log.close()
    (line,) = (tmp_path / "requests.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["inputs"], found["outputs"]) == ({"x": [2.0]}, {"y": [1.5]})


def test_only_the_writer_converts_and_a_line_has_a_few_rows(tmp_path, monkeypatch):
    specs = [TensorInfo(name, "int64", (None,)) for name in "xz"]
    reader = FeatureReader(specs, [Origin("features", name) for name in "xz"])
    rows, converts = 1000, []
    columns = reader.from_rows([{"x": i, "z": 0} for i in range(rows)])
    answer = Answer({"y": np.arange(rows)}, "ctr", 7, "predict", rows)
    by_name = PendingRows.by_name

    def convert(found):
        converts.append((threading.current_thread().name, found.rows))
        return by_name(found)

    monkeypatch.setattr(PendingRows, "by_name", convert)
    for rate in (0.0, 1.0):
        log = RequestLog(str(tmp_path / "requests.jsonl"), rate)
        log.record(answer, columns)
        log.close()
    assert converts == [("request-log", 100)]
    (line,) = (tmp_path / "requests.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert found["rows"] == rows
    assert found["inputs"] == {"x": list(range(100)), "z": [0] * 100}
    assert found["outputs"] == {"y": list(range(100))}


def test_a_disk_that_hangs_does_not_keep_the_server_from_ending(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(request_log, "_CLOSE_SECONDS", 0.1)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = RequestLog(str(path), 1.0)
    long = {"x": np.array(["a" * 1_000_000])}  # more than a pipe takes
    for _ in range(3):
        log.record(ANSWER, long)
    log.close()
    assert "not written: the disk hangs" in caplog.text
    os.close(reading)  # the writer goes on, and fails
    monkeypatch.setattr(request_log, "_CLOSE_SECONDS", 60.0)
    log.close()


def test_files_are_rotated_and_the_oldest_is_deleted(tmp_path):
    path = tmp_path / "requests.jsonl"
    log = RequestLog(str(path), 1.0, max_bytes=200, files=2)
    for _ in range(20):
        log.record(ANSWER, COLUMNS)
    log.close()
    names = ["requests.jsonl", "requests.jsonl.1", "requests.jsonl.2"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    for name in names:
        text = (tmp_path / name).read_text()
        assert len(text) <= 200
        assert all(json.loads(line) for line in text.splitlines())


def test_a_full_disk_is_one_line_and_a_count(caplog):
    lost = []
    with caplog.at_level(logging.ERROR, "estimax.serving"):
        log = RequestLog("/dev/full", 1.0, on_lost=lambda: lost.append(1))
        for _ in range(50):
            log.record(ANSWER, COLUMNS)
        log.close()
    assert len(lost) == 50
    (record,) = caplog.records
    assert "not written: [Errno 28] No space left on device" in record.getMessage()
    assert record.exc_info is None


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        RequestLog(str(tmp_path / "none" / "requests.jsonl"), 1.0)
    with pytest.raises(ConfigError, match="expected a rate"):
        RequestLog(str(tmp_path / "requests.jsonl"), 2.0)
