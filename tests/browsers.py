"""A real browser for slow tests: headless Chromium, driven by selenium."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card
    *("--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--window-size=1100,900"),
)


@contextmanager
def browsing():
    """A browser in a `with` block; skips the test if none is installed."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def wait_for(driver, find, seconds=30):
    """Return what `find` returns once that is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, seconds).until(lambda _: find())


def keep_screenshot(driver, tmp_path, name):
    """Save a picture to ESTIMAX_SCREENSHOTS, or to the folder of the test."""
    folder = Path(os.environ.get("ESTIMAX_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    assert driver.save_screenshot(str(folder / name))
