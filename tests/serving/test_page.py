"""The page of the server in a real browser: it shows the model and predicts."""

import shutil

import pytest
from browsers import browsing, keep_screenshot, wait_for
from serving.bundles import export_clicks, probability
from serving.servers import running_server


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
            find(f"input[name={name}]")[0].send_keys(value)
        find("button")[0].click()
        answer = wait_for(browser, lambda: find("pre")[0].text)
        assert f"{probability(1.5, 2, 1):.4f}"[:6] in answer
        keep_screenshot(browser, tmp_path, "serving-page.png")
        assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
