"""TensorBoard's real page and a report, in a real browser; screenshots are kept."""

import re
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from browsers import browsing, keep_screenshot, wait_for

import estimax as ex

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("tensorboard")
CITIES = ["Oslo", "Rome", "Paris", "Bern"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 1)).astype(np.float32)
CITY = np.array(CITIES)[RNG.integers(0, 4, 2000)]
LABELS = (X[:, 0] + (CITY == "Rome") + RNG.normal(size=2000) > 0.3).astype(np.int64)


def input_fn():
    rows = {"x": X, "city": CITY}, LABELS
    return ex.input.Dataset.from_tensor_slices(rows).batch(100)


def model_fn(features, labels, mode, params):
    fc = ex.feature_columns
    city = fc.categorical_column_with_vocabulary_list("city", CITIES)
    columns = [fc.numeric_column("x"), fc.embedding_column(city, 4)]
    from flax import linen as nn

    net = fc.input_layer(features, columns)
    net = nn.relu(nn.Dense(params["units"], name="hidden")(net))
    logits = nn.Dense(1, name="logits")(net)
    if mode == ex.ModeKeys.TRAIN:
        tone = np.sin(np.arange(4000) / 9, dtype=np.float32)[None]
        ex.summary.audio("tone", tone, 8000)
    head = ex.heads.BinaryClassHead()
    rule = ex.optimizers.Adagrad(params["rate"])
    return head.create_estimator_spec(features, mode, logits, labels, optimizer=rule)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a model with other params, each evaluated twice."""
    folder = tmp_path_factory.mktemp("runs")
    for units, rate in ((4, 0.05), (16, 0.2)):
        model = ex.Estimator(
            model_fn,
            folder / f"units_{units}",
            ex.RunConfig(save_summary_steps=10, tf_random_seed=1),
            {"units": units, "rate": rate},
        )
        for _ in range(2):
            model.train(lambda: input_fn().repeat(), steps=100)
            model.evaluate(input_fn)
            model.evaluate(input_fn)
    return folder, model


@pytest.fixture(scope="module")
def tensorboard(runs):
    """The address of a TensorBoard that shows the runs."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(runs[0])]
    command += ["--port", "0", "--host", "127.0.0.1", "--load_fast", "false"]
    log = runs[0].parent / "tensorboard.log"
    with open(log, "w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not (found := re.search(r"http://127\S+:\d+", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        wait_until_loaded(found[0])
        yield found[0]
    finally:
        server.terminate()
        server.wait(30)


def wait_until_loaded(address):
    deadline = time.monotonic() + 60
    while b"units_16/eval" not in read(f"{address}/data/runs"):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def read(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read()


@pytest.mark.parametrize(
    ("tab", "expected"),
    [
        ("timeseries", "gradient_norm"),
        ("graphs", "hidden"),
        ("pr_curves", "units_16/eval is at step 200"),
        ("hparams", "units"),
        ("images", "calibration"),
        ("audio", "tone"),
        ("text", "confusion"),
        ("projector", "Points: 4"),
    ],
)
def test_tensorboard_shows_it(tensorboard, tmp_path, tab, expected):
    with browsing() as browser:
        browser.get(f"{tensorboard}/#{tab}")
        wait_for(browser, lambda: expected in text_of(browser), 120)
        time.sleep(2)  # for animations, so that the picture is worth looking at
        keep_screenshot(browser, tmp_path, f"tensorboard-{tab}.png")


# The text of every part of a page, also of those in shadow trees.
TEXT = """
    const all = n => (n.shadowRoot ? all(n.shadowRoot) : "") +
        (n.nodeType === 3 ? n.textContent : "") +
        [...n.childNodes].map(all).join("");
    return all(document.body).replace(/\\s+/g, " ");
"""


def text_of(browser):
    """The text of a page and of its frames; the projector is in a frame of a frame."""
    found = browser.execute_script(TEXT)
    for frame in browser.find_elements("css selector", "iframe"):
        browser.switch_to.frame(frame)
        found += text_of(browser)
        browser.switch_to.parent_frame()
    return found


def test_a_report_is_legible_in_light_and_dark(runs, tmp_path):
    path = ex.report.write_report(runs[1], input_fn, tmp_path / "report.html")
    with browsing() as browser:
        colors = []
        for mode in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": mode}
            browser.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [feature]}
            )
            browser.get(path.as_uri())
            colors.append(
                browser.execute_script(
                    "const s = getComputedStyle;"
                    "return [s(document.body).backgroundColor, s(document.body).color,"
                    " s(document.querySelector('svg text')).fill]"
                )
            )
            loaded = "return performance.getEntriesByType('resource').length"
            assert browser.execute_script(loaded) == 0
            keep_screenshot(browser, tmp_path, f"report-{mode}.png")
        severe = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert not severe
    light, dark = colors
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert light[1] == light[2], "figures have the color of the text"
    assert dark[1] == dark[2]
