"""The tutorial does what it says: its files and commands are run, in an empty folder.

A block with a title is a file, a block of `sh` has commands. A block that cannot run
has the comment `<!-- not run: the reason -->` on the line before.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial" / "csv_to_server.md"
_BLOCK = re.compile(
    r'(?P<skip><!-- not run: .+? -->\n)?```(?P<kind>\w+)(?: title="(?P<file>[^"]+)")?\n'
    r"(?P<text>.*?)```",
    re.S,
)


def blocks():
    """Files as (name, text), and commands as (None, line), as the page has them."""
    for found in _BLOCK.finditer(TUTORIAL.read_text()):
        if found["file"]:
            yield found["file"], found["text"]
        elif found["kind"] == "sh" and not found["skip"]:
            yield from ((None, line) for line in found["text"].splitlines())


def run(command, folder):
    """Run a line of the shell, with the Python and estimax of these tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_data_and_the_run_file_of_the_tutorial_are_right(tmp_path):
    files = {name: text for name, text in blocks() if name}
    assert list(files)[:2] == ["make_data.py", "run.yaml"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run("python make_data.py", tmp_path)
    first = (tmp_path / "train.csv").read_text().splitlines()[:4]
    assert "\n".join(first) in TUTORIAL.read_text()
    assert "9.8%" in run("estimax check run.yaml --data", tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_in_an_empty_folder(tmp_path):
    port, server, shown = _free_port(), None, {}
    try:
        for name, text in blocks():
            text = text.replace("localhost:8501", f"localhost:{port}")
            if name:
                (tmp_path / name).write_text(text)
            elif text.startswith("estimax serve"):
                server = _serve(text, port, tmp_path)
            else:
                shown[text] = run(text, tmp_path)
    finally:
        if server:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    assert server.returncode == 0
    events = map(json.loads, (tmp_path / "metrics.json").read_text().splitlines())
    metrics = [event["metrics"] for event in events if event["event"] == "evaluation"]
    assert metrics[0]["auc"] > 0.8
    assert shown["python explain.py"].splitlines()[1].startswith("months")
    assert (tmp_path / "scores.csv").read_text().startswith("customer,class_ids")
    first, second = re.findall(r"probability (\S+)", shown["python client.py"])
    assert float(first) > 0.9
    assert float(second) < 0.2


def _free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def _serve(command, port, folder):
    """Start the server of a command on another port, and wait until it is ready."""
    program = Path(sys.executable).with_name("estimax")
    server = subprocess.Popen(
        [program, *command.split()[1:], "--rest-api-port", str(port), "--port", "0"],
        cwd=folder,
    )
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/readyz"):
                return server
        except (urllib.error.URLError, ConnectionError):
            assert server.poll() is None, "the server ended"
            time.sleep(0.5)
    raise AssertionError("the server is not ready after five minutes")
