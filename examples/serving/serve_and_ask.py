"""Serve a model and ask it: REST requests, and a new version without a pause.

    pip install 'estimax[serve]'
    python examples/serving/serve_and_ask.py

The program trains a model of house prices, exports it, starts `estimax serve` in
another process, and sends requests with the standard library alone; any client of
TensorFlow Serving would do. Then it trains on and exports again. The server loads the
new version by itself, and the client sees other answers.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np

import estimax as ex

fc = ex.feature_columns
HOUSES = [
    {"district": "north", "rooms": 2.0},
    {"district": "south", "rooms": 2.0},
    {"district": "south", "rooms": 6.0},
]


class Client:
    """A client of one served model."""

    def __init__(self, port, model):
        self.address = f"http://localhost:{port}/v1/models/{model}"

    def predict(self, rows):
        """Return the predictions of rows, a list of dicts."""
        body = {"signature_name": "predict", "instances": rows}
        return self._send(":predict", json.dumps(body).encode())["predictions"]

    def ready_versions(self):
        """Return the versions that answer; none if the server is starting."""
        try:
            states = self._send("")["model_version_status"]
        except (urllib.error.URLError, ConnectionError):
            return []
        return [int(s["version"]) for s in states if s["state"] == "AVAILABLE"]

    def wait_for_another(self, version, seconds=300):
        """Wait until another version than this one answers, and return it."""
        for _ in range(10 * seconds):
            new = [ready for ready in self.ready_versions() if ready != version]
            if new:
                return max(new)
            time.sleep(0.1)
        raise TimeoutError(f"no new version within {seconds} seconds")

    def _send(self, path, body=None):
        with urllib.request.urlopen(self.address + path, body) as answer:
            return json.load(answer)


def houses(count=4000):
    draw = np.random.default_rng(0)
    rooms = draw.integers(1, 8, count).astype(np.float32)
    south = draw.random(count) < 0.5
    price = 100 + 40 * rooms + np.where(south, 80, 0) + draw.normal(0, 10, count)
    district = np.where(south, "south", "north").astype(object)
    return {"district": district, "rooms": rooms}, price.astype(np.float32)


def show(version, answers):
    print(f"version {version}")
    for house, row in zip(HOUSES, answers, strict=True):
        rooms = int(house["rooms"])
        (price,) = row  # a signature with one output answers with that alone
        print(f"  {rooms} rooms, {house['district']}: {price:4.0f} thousand")


def main(steps=300):
    rows = ex.input.Dataset.from_tensor_slices(houses()).shuffle(4000, seed=1)
    district = fc.categorical_column_with_vocabulary_list(
        "district", ["north", "south"]
    )
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        model = ex.DNNRegressor(
            [32],
            [fc.indicator_column(district), fc.numeric_column("rooms")],
            f"{folder}/model",
            optimizer=ex.optimizers.Adam(0.05),
            config=ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
        )
        model.train(lambda: rows.repeat().batch(64), steps=20)  # not enough, on purpose
        model.export_saved_model(f"{folder}/export")
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "estimax", "serve", f"prices={folder}/export"),
                *("--rest-api-port", str(port), "--port", "0", "--batch-sizes", "1,4"),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            client = Client(port, "prices")
            first = client.wait_for_another(None)
            seen.append(client.predict(HOUSES))
            show(first, seen[-1])
            model.train(lambda: rows.repeat().batch(64), steps=steps)
            model.export_saved_model(f"{folder}/export")
            second = client.wait_for_another(first)
            seen.append(client.predict(HOUSES))
            show(second, seen[-1])
        finally:
            server.terminate()
            server.wait(60)
    return seen


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
