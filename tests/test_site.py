"""The documentation site is built without a warning and has every public name."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import estimax as ex

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site):
    names = [f"estimax.{name}" for name in ex.__all__ if is_name(name)]
    packages = [name for name in ex.__all__ if not is_name(name)]
    for package in [*packages, "client", "serving"]:  # which are not in `ex`
        public = import_module(f"estimax.{package}").__all__
        names += [f"estimax.{package}.{name}" for name in public]
    pages = "".join(p.read_text() for p in (site / "reference").glob("*.html"))
    found = set(re.findall(r'id="(estimax[\w.]*)"', pages))
    assert len(names) > 300
    # A module may have the name of its function, as `estimax.metrics.auc.auc`.
    twice = {name: f"{name}.{name.rpartition('.')[2]}" for name in names}
    assert [n for n in names if n not in found and twice[n] not in found] == []


def is_name(name):
    return (
        not (ROOT / "estimax" / name).is_dir()
        and not (ROOT / "estimax" / f"{name}.py").exists()
    )


def test_the_programs_of_all_examples_are_on_the_site(site):
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert {page.stem for page in (site / "examples").glob("*.html")} == folders
    listed = (site / "examples.html").read_text()
    assert 'href="examples/gan.html"' in listed


def test_examples_are_code_and_pages_load_nothing_from_other_hosts(site):
    heads = (site / "reference" / "heads.html").read_text()
    assert '<span class="doc-section-title">Examples:</span>' in heads
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(http[^"]+)"', page.read_text()
        )
        assert loaded == [], page
