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
from estimax.core.lazy_names import is_alias, modules_of_names

PACKAGE = Path(__file__).parent.parent / "estimax"
# A package imports only from lower layers. The parts of `v1` have layers of their own.
LAYERS = {
    "core": 0,
    "storage": 1,
    "metrics": 1,
    "calibration": 1,
    "parallel": 1,
    "native": 2,
    "v1.metrics": 2,
    "formats": 3,
    "input": 4,
    "checkpoints": 4,
    "staging": 5,
    "v1.inputs": 5,
    "optimizers": 6,
    "feature_columns": 6,
    "hooks": 6,
    "v1.crf": 6,
    "heads": 7,
    "training": 7,
    "export": 7,
    "v1.optimizers": 7,
    "v1.feature_columns": 7,
    "v1.lookup": 7,
    "v1.losses": 8,
    "estimator": 8,
    "serving": 8,
    "canned": 9,
    "client": 9,
    "inspection": 9,
    "v1.experimental": 10,
    "config": 10,
    "cli": 11,
    "sklearn": 11,
}
# The same within `input`; its own modules are the front, above all of these.
INPUT_LAYERS = {"streams": 0, "sources": 1, "examples": 1, "ops": 2}
MODULES = sorted(PACKAGE.rglob("*.py"))
# Packages with names that users write, and packages within them that do.
PUBLIC = [
    "canned checkpoints client config estimator export feature_columns heads hooks",
    "input inspection metrics optimizers serving sklearn export.scoring hooks.summary",
    "calibration feature_columns.transforms inspection.report staging.variables v1.crf",
    "v1.experimental v1.feature_columns v1.inputs v1.lookup v1.losses v1.metrics",
    "v1.optimizers",
]
PUBLIC = [name for line in PUBLIC for name in line.split()]


def test_every_package_has_a_layer():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == {name.split(".")[0] for name in LAYERS}
    parts = {path.stem for path in (PACKAGE / "v1").iterdir()} - {"__init__"}
    assert parts - {"__pycache__"} == {n[3:] for n in LAYERS if n.startswith("v1.")}
    inner = {path.parent.name for path in (PACKAGE / "input").glob("*/__init__.py")}
    assert inner == INPUT_LAYERS.keys()


def test_the_architecture_page_lists_every_package_with_its_layer():
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d*) ?\| `(\w+)` \|", text, re.MULTILINE)
    listed = {name: int(layer) for layer, name in rows if layer}
    assert listed == {n: layer for n, layer in LAYERS.items() if "." not in n}
    assert ("", "v1") in rows


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_imports_point_down(package):
    found = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in _files_of(package)
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


TRAINS = ("training", "estimator", "heads", "hooks", "optimizers", "canned", "v1")


@pytest.mark.parametrize("room", ["estimax.export", "estimax.serving"])
def test_bundles_and_the_server_import_no_training_code(room):
    # A server that imported it would start seconds later, and would need what trains.
    code = f"import sys, {room}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    banned = {
        "flax",
        "optax",
        "estimax.config",
        *(f"estimax.{package}" for package in TRAINS),
    }
    assert not banned & set(done.stdout.split())


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


@pytest.mark.parametrize("package", ["export", "feature_columns"])
def test_the_stub_of_a_lazy_package_imports_every_public_name(package):
    module = importlib.import_module(f"estimax.{package}")
    assert sorted(modules_of_names(module.__file__)) == sorted(module.__all__)


def test_every_public_class_name_is_defined_once():
    places = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def _files_of(package):
    path = PACKAGE.joinpath(*package.split("."))
    files = list(path.rglob("*.py")) or [path.with_suffix(".py")]
    # A second public path of a module contains nothing that could depend on it.
    return [file for file in files if not is_alias(file)]


def _imported(path):
    for node in _nodes_that_run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _nodes_that_run(node):
    """Yield a node and those below it, without what only type checkers see."""
    yield node
    is_if = isinstance(node, ast.If)
    is_for_types = is_if and ast.unparse(node.test) == "TYPE_CHECKING"
    below = node.orelse if is_for_types else ast.iter_child_nodes(node)
    for child in below:
        yield from _nodes_that_run(child)


def _packages_imported(path):
    for name in _imported(path):
        parts = name.split(".")
        if parts[0] != "estimax":
            continue
        found = [".".join(parts[1 : n + 1]) for n in (2, 1)]
        yield from [package for package in found if package in LAYERS][:1]
