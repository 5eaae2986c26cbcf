"""Managers that tests make are closed, so that no thread outlives its test."""

import pytest

from estimax.serving.manager import ModelManager


@pytest.fixture
def closed_managers(monkeypatch):
    made, init = [], ModelManager.__init__

    def remember(manager, *args, **options):
        init(manager, *args, **options)
        made.append(manager)

    monkeypatch.setattr(ModelManager, "__init__", remember)
    yield
    for manager in made:
        manager.close(timeout=5.0)
