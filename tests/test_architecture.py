"""Imports point to lower layers, and every public name is documented."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import estimax

PACKAGE = Path(__file__).parent.parent / "estimax"
# A package imports only from lower layers.
LAYERS = {
    "core": 0,
    "native": 1,
    "staging": 2,
    "wire": 3,
    "variables": 3,
    "metrics": 3,
    "optimizers": 3,
    "parallel": 3,
    "transforms": 4,
    "input": 4,
    "summary": 4,
    "checkpoints": 4,
    "crf": 5,
    "feature_columns": 5,
    "heads": 5,
    "hooks": 5,
    "lookup": 5,
    "feeding": 5,
    "losses": 6,
    "training": 6,
    "export": 6,
    "estimator": 7,
    "scoring": 7,
    "serving": 7,
    "canned": 8,
    "inspection": 8,
    "report": 9,
    "config": 9,
    "cli": 10,
}
# The same within `input`; its own modules are the front, above all of these.
INPUT_LAYERS = {"streams": 0, "sources": 1, "examples": 1, "verbs": 2}
MODULES = sorted(PACKAGE.rglob("*.py"))
PUBLIC = sorted(LAYERS.keys() - {"core", "native", "parallel", "feeding", "cli"})


def test_every_package_has_a_layer():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == LAYERS.keys()
    inner = {path.parent.name for path in (PACKAGE / "input").glob("*/__init__.py")}
    assert inner == INPUT_LAYERS.keys()


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_imports_point_down(package):
    found = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in (PACKAGE / package).rglob("*.py")
        for other in _packages_imported(path)
        if other != package and LAYERS[other] >= LAYERS[package]
    }
    assert not found


@pytest.mark.parametrize("package", sorted(INPUT_LAYERS))
def test_imports_within_input_point_down(package):
    found = set()
    for path in (PACKAGE / "input" / package).rglob("*.py"):
        for name in _imported(path):
            parts = name.split(".")
            if parts[:2] != ["estimax", "input"] or len(parts) < 3:
                continue
            other = parts[2]
            layer = INPUT_LAYERS.get(other, len(INPUT_LAYERS))
            if other != package and layer >= INPUT_LAYERS[package]:
                found.add(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not found


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_documented(package):
    module = importlib.import_module(f"estimax.{package}")
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"estimax.{package}.{name} has no docstring"


def test_every_name_at_the_top_exists_and_is_documented():
    import estimax

    for name in estimax.__all__:
        assert inspect.getdoc(getattr(estimax, name)), name


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE.parent))
)
def test_examples_in_docstrings_run(path):
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    if name.endswith("__main__"):
        pytest.skip("running it is its purpose")
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_importing_estimax_loads_nothing_that_trains():
    code = "import sys, estimax; print([m for m in sys.modules if 'jax' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_forbidden_import():
    forbidden = {"pickle", "cloudpickle", "dill", "tensorflow", "marshal"}
    for path in MODULES:
        roots = {name.split(".")[0] for name in _imported(path)}
        assert not roots & forbidden, path


def test_only_the_kernels_import_numba():
    for path in MODULES:
        roots = {name.split(".")[0] for name in _imported(path)}
        is_kernel = path.parent == PACKAGE / "native" / "kernels"
        assert is_kernel or not roots & {"numba", "llvmlite"}, path


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _packages_imported(path):
    for name in _imported(path):
        parts = name.split(".")
        if parts[0] == "estimax" and len(parts) > 1 and parts[1] in LAYERS:
            yield parts[1]


GUIDES = sorted((PACKAGE.parent / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_what_a_guide_names_is_there(path):
    found = []
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.S):
        if block.startswith(">>>"):
            block = doctest.script_from_examples(block)
        for node in ast.walk(ast.parse(block)):
            name = _dotted(node)
            if name is not None and name.startswith("ex.") and not _exists(name):
                found.append(name)
    assert not found


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_what_a_guide_shows_at_the_prompt_is_what_comes(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not doctest.testfile(str(path), module_relative=False).failed


def test_every_file_that_the_documentation_names_is_there():
    root = PACKAGE.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *GUIDES]
    missing = [
        f"{page.name}: {path}"
        for page in pages
        for path in re.findall(
            r"`((?:estimax|examples|tests)/[\w/]+\.py)`", page.read_text()
        )
        if not (root / path).exists()
    ]
    assert not missing


def _dotted(node):
    """The text of `ex.package.name`, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _exists(name):
    value = estimax
    for part in name.split(".")[1:]:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True
