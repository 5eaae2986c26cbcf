"""Make the pictures of the README: the terminal, the report and the page of the server.

    pip install -e '.[dev]' pyte             # and chromium with chromedriver
    python scripts/pictures.py               # writes docs/assets/pictures

The run is the one that the README shows. The terminal is a real one of 100 columns, and
the pages are those of a real browser; each is made in light and dark.
"""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyte
from PIL import Image
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text
from selenium import webdriver

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "assets" / "pictures"
COLUMNS, LINES = 100, 34
WIDTH, HEIGHT = 1100, 900
# The dark theme of rich is that of its pictures; the light one has its colours, darker.
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        *((36, 41, 47), (180, 35, 24), (17, 99, 41), (125, 78, 0)),
        *((9, 80, 174), (130, 80, 223), (17, 106, 123), (110, 119, 129)),
    ],
)
DARK = SVG_EXPORT_THEME or DIMMED_MONOKAI


def main() -> None:
    """Train the run of the README in an empty folder, and make the pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pictures-"))
    try:
        subprocess.run(
            [sys.executable, ROOT / "examples" / "flights" / "prepare.py"],
            cwd=folder,
            check=True,
        )
        (folder / "late.yaml").write_text(run_file_of_the_readme())
        train = [sys.executable, "-m", "estimax", "train", "late.yaml"]
        run_in_terminal(train, folder)  # kernels and programs are compiled
        shutil.rmtree(folder / "runs")
        screen = run_in_terminal(train, folder)
        for name, theme in (("light", LIGHT), ("dark", DARK)):
            path = PICTURES / f"terminal-{name}.svg"
            path.write_text(svg_of(screen, "estimax train late.yaml", theme))
        take_pages(folder)
    finally:
        shutil.rmtree(folder)


def run_file_of_the_readme() -> str:
    """Return the first block of YAML in the README."""
    found = re.search(r"```yaml.*?\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert found is not None
    return found[1]


# --------------------------------------------------------------------------- terminal
def run_in_terminal(command: list[str], folder: Path) -> pyte.Screen:
    """Run a command in a terminal, and return its screen at the end."""
    screen = pyte.HistoryScreen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    variables = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, {**os.environ, **variables})
    while True:
        try:
            received = os.read(terminal, 65536)
        except OSError:  # the program ended
            break
        stream.feed(received)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "\n".join(screen.display)
    return screen


def svg_of(screen: pyte.Screen, title: str, theme: TerminalTheme) -> str:
    """Return the screen as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    last = max(n for n in range(LINES) if screen.display[n].strip())
    for number in range(last + 1):
        line = Text()
        chars = [screen.buffer[number][column] for column in range(COLUMNS)]
        for style, alike in itertools.groupby(chars, key=_style_of):
            line.append("".join(char.data for char in alike), style)
        line.rstrip()
        console.print(line, no_wrap=True, crop=True)
    svg = console.export_svg(title=title, theme=theme)
    # rich refers to a font on another host; a browser has one of its own.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S)


def _style_of(char: Any) -> Style:
    return Style(color=_colour(char.fg), bold=char.bold, italic=char.italics)


def _colour(name: str) -> str | None:
    """Return the name that rich has for a colour of pyte."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow", "brightbrown": "bright_yellow"}.get(
        name, name.replace("bright", "bright_")
    )


# ------------------------------------------------------------------------------ pages
def take_pages(folder: Path) -> None:
    """Take pictures of the report and of the page of the server."""
    driver = start_browser()
    command = [sys.executable, "-m", "estimax", "serve", "late=runs/late/export/best"]
    address = "http://127.0.0.1:8501"
    server = subprocess.Popen(command, cwd=folder)
    try:
        wait_until_ready(f"{address}/readyz")
        pages = {
            "report": (folder / "runs" / "late" / "report.html").as_uri(),
            "server": f"{address}/ui",
        }
        for scheme in ("light", "dark"):
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
            )
            for name, page in pages.items():
                driver.get(page)
                time.sleep(2)
                if name == "server":
                    predict(driver)
                image = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
                image.save(PICTURES / f"{name}-{scheme}.webp", quality=80, method=6)
    finally:
        driver.quit()
        server.terminate()
        server.wait()


def start_browser() -> Any:
    """Return a browser without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-sync"),
        f"--window-size={WIDTH},{HEIGHT}",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver") or "")
    return webdriver.Chrome(options=options, service=service)


def wait_until_ready(url: str, seconds: float = 120) -> None:
    """Return when a server answers; raise `TimeoutError` if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(url)


def predict(driver: Any) -> None:
    """Open the form of the model and send its example."""
    driver.find_elements("css selector", "summary")[0].click()
    driver.find_elements("css selector", "details form button")[0].click()
    time.sleep(2)


if __name__ == "__main__":
    main()
