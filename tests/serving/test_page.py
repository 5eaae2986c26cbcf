"""The page of the server in a real browser: it shows the model and predicts."""

import json
import re
import shutil
import subprocess

import pytest
from browsers import browsing, keep_screenshot, wait_for
from serving.bundles import export_clicks, probability
from serving.servers import running_server

from estimax import export
from estimax.export.signature import TensorInfo
from estimax.serving.describe import _example, page


def run_script(code):
    """Run code with the functions of the page; return what it prints, as JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = re.search(r"<script>(.*?)</script>", page().decode(), re.S)[1]
    functions = script[: script.index("if (location.pathname")]
    done = subprocess.run(
        [node, "-e", functions + code], capture_output=True, text=True, timeout=60
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("dtype", "shape", "text", "sent"),
    [
        ("float32", [None], "", "null"),  # missing, not 0
        ("float32", [None], "NaN", "NaN"),
        ("float32", [None], " 1.5 ", "1.5"),
        ("int64", [None], "9007199254740993", "9007199254740993"),
        ("string", [None], "", '""'),
        ("string", [None], 'a"b', '"a\\"b"'),
        ("bool", [None], "true", "true"),
        ("float32", [None, 2], "1, 2", "[1, 2]"),
        ("float32", [None, 2], "", "[]"),
    ],
)
def test_fields_of_the_page_become_json(dtype, shape, text, sent):
    about = json.dumps({"name": "x", "dtype": dtype, "shape": shape, "kind": "dense"})
    code = f"console.log(JSON.stringify(value({about}, {json.dumps(text)})))"
    assert run_script(code) == sent


def test_the_page_shows_answers_that_are_not_numbers():
    answer = '{"predictions": [{"y": [NaN, -Infinity, 1.0], "name": "NaN \\\\" }]}'
    code = f"console.log(JSON.stringify(write(parse({json.dumps(answer)}))))"
    shown = run_script(code)
    assert re.sub(r"\s", "", shown) == (
        '{"predictions":[{"y":[NaN,-Infinity,1],"name":"NaN\\\\"}]}'
    )


def test_the_form_begins_with_the_example_of_the_bundle(tmp_path):
    bundle = export.load(export_clicks(tmp_path))
    found = {
        spec.name: _example(bundle.example(), spec)
        for spec in bundle.signature("predict").inputs
    }
    assert found == {"age": 1.0, "hours": 3, "city": "Oslo", "tags": ["a", "b"]}
    other = TensorInfo("none", "float32", (None,), "dense")
    assert _example(bundle.example(), other) is None


@pytest.fixture
def browser():
    with browsing() as driver:
        yield driver


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_shows_the_model_and_predicts(tmp_path, browser):
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "7")
    with running_server(tmp_path, f"clicks={base}", "--batch-sizes", "1") as server:
        browser.get(f"http://127.0.0.1:{server.rest_port}/ui")

        def find(selector):
            return browser.find_elements("css selector", selector)

        (state,) = wait_for(browser, lambda: find(".state"))
        assert state.text == "AVAILABLE"
        find("summary")[0].click()
        find("select option[value=predict]")[0].click()
        values = {"age": "1.5", "hours": "2", "city": "Oslo", "tags": "a"}
        for name, value in values.items():
            field = find(f"input[data-input={name}]")[0]
            assert field.get_attribute("value")  # of the example of the bundle
            field.clear()
            field.send_keys(value)
        find("button")[0].click()
        answer = wait_for(browser, lambda: find("pre")[0].text)
        assert f"{probability(1.5, 2, 1):.4f}"[:6] in answer
        keep_screenshot(browser, tmp_path, "serving-page.png")
        assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
