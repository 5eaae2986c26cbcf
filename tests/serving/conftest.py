"""Fixtures of the server's tests: a running server, and managers that are closed."""

import shutil

import pytest
from serving.bundles import export_clicks
from serving.servers import running_server

from estimax.serving.manager import ModelManager


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of version 7 of the model `clicks`."""
    folder = tmp_path_factory.mktemp("serving")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "7")
    model = f"clicks={folder / 'clicks'}"
    with running_server(folder, model, "--batch-sizes", "1,4") as running:
        yield running


@pytest.fixture
def closed_managers(monkeypatch):
    """Close the managers that a test makes, so that no thread outlives it."""
    made, init = [], ModelManager.__init__

    def remember(manager, *args, **options):
        init(manager, *args, **options)
        made.append(manager)

    monkeypatch.setattr(ModelManager, "__init__", remember)
    yield
    for manager in made:
        manager.close(timeout=5.0)
