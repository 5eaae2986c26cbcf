"""The page of the server in a real browser: it shows the model and predicts."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from browsers import browsing, keep_screenshot, wait_for
from serving.bundles import export_clicks, probability
from serving.servers import running_server

from estimax import export
from estimax.export.signature import TensorInfo
from estimax.serving.describe import _example, _words, page


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


def test_a_value_that_is_marked_as_missing_is_null():
    about = json.dumps({"name": "x", "dtype": "string", "shape": [None]})
    assert (
        run_script(f'console.log(JSON.stringify(value({about}, "a", true)))') == "null"
    )


@pytest.mark.parametrize(
    ("answer", "classes"),
    [
        (
            {"probabilities": [0.25, 0.75], "all_classes": ["no", "yes"]},
            [["no", 0.25], ["yes", 0.75]],
        ),
        ({"scores": [0.5, 0.5], "classes": ["a", "b"]}, [["a", 0.5], ["b", 0.5]]),
        ({"probabilities": [0.1, 0.9], "classes": ["1"]}, [["0", 0.1], ["1", 0.9]]),
        ({"predictions": [3.5]}, []),
        ({"scores": [1.5, 2.0]}, []),  # not probabilities
        (3.5, []),
    ],
)
def test_probabilities_get_the_names_of_their_classes(answer, classes):
    code = f"console.log(JSON.stringify(classesOf({json.dumps(answer)})))"
    assert run_script(code) == classes


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (
            {
                **{"contributions/age": 0.5, "contributions/city": -2.0},
                **{"baseline": 1.0, "output": -0.5, "residual": 0.0},
            },
            [["city", -2.0], ["age", 0.5]],
        ),
        ({"baseline": 1.0, "output": -0.5, "residual": 0.0}, []),
        ({"contributions/age": 0.5}, []),  # an output of some model
        (3.5, []),
    ],
)
def test_parts_of_features_are_shown_largest_first(answer, parts):
    code = f"console.log(JSON.stringify(partsOf({json.dumps(answer)})))"
    assert run_script(code) == parts


def test_the_shown_python_program_holds_the_request():
    sent = (
        '{"instances": [{"age": NaN, "name": "it\'s null", "flag": true, "x": null}]}'
    )
    code = (
        "globalThis.sessionStorage = {getItem: () => null};"
        f"console.log(JSON.stringify(programs('http://h/v1', {json.dumps(sent)})))"
    )
    shell, program = run_script(code).split("\n\nimport", 1)
    assert shlex.split(shell.replace("\\\n", ""))[2] == sent
    body = re.search(r"^body = (.*)$", program, re.M)[1]
    names = {"float": float}
    (row,) = eval(body, names)["instances"]  # as a user would run it
    assert row == {"age": pytest.approx(float("nan"), nan_ok=True)} | {
        "name": "it's null",
        "flag": True,
        "x": None,
    }


def test_fields_propose_the_words_of_their_vocabulary(tmp_path):
    bundle = export.load(export_clicks(tmp_path))
    words = {
        spec.name: _words(bundle.plan, spec)
        for spec in bundle.signature("predict").inputs
    }
    assert words.pop("city") == ["Oslo", "Rome"]
    assert not any(words.values())


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
        find("details form button")[0].click()
        answer = wait_for(browser, lambda: find("pre")[0].text)
        assert f"{probability(1.5, 2, 1):.4f}"[:6] in answer
        assert [bar.text for bar in find(".bars b")] == ["1", "0"]  # likeliest first
        find("details details summary")[0].click()
        assert "curl -d" in find("details details pre")[0].text
        keep_screenshot(browser, tmp_path, "serving-page.png")
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        browser.set_window_size(500, 1600)
        keep_screenshot(browser, tmp_path, "serving-page-narrow-dark.png")
        assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_asks_for_the_token(tmp_path, browser):
    base = tmp_path / "clicks"
    shutil.copytree(export_clicks(tmp_path / "exported"), base / "7")
    (tmp_path / "token").write_text("secret")
    arguments = (f"clicks={base}", "--token-file", str(tmp_path / "token"))
    with running_server(tmp_path, *arguments, "--batch-sizes", "1") as server:
        browser.get(f"http://127.0.0.1:{server.rest_port}/ui")

        def find(selector):
            return browser.find_elements("css selector", selector)

        field = wait_for(browser, lambda: find("#token:not([hidden]) input"))[0]
        assert not find(".state")
        field.send_keys("secret")
        find("#token button")[0].click()
        (state,) = wait_for(browser, lambda: find(".state"))
        assert state.text == "AVAILABLE"
        find("summary")[0].click()
        find("option[value=predict]")[0].click()
        find("details form button")[0].click()
        assert "probabilities" in wait_for(browser, lambda: find("pre")[0].text)
