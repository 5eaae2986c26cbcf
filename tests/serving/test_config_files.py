"""A file of models is returned when it changes, until it is applied."""

import json

import pytest

from estimax.core.errors import ConfigError
from estimax.serving.config_files import ModelsFile


def write(path, *names):
    models = [{"name": name, "base_path": f"/models/{name}"} for name in names]
    path.write_text(json.dumps({"model_config_list": {"config": models}}))


def names(configs):
    return [config.name for config in configs]


def test_a_changed_file_is_tried_again_until_it_is_applied(tmp_path):
    path = tmp_path / "models.json"
    write(path, "a")
    file = ModelsFile(str(path), retry_seconds=0.0)
    assert names(file.read()) == ["a"]
    assert file.read_if_changed() is None
    write(path, "a", "another")
    assert names(file.read_if_changed()) == ["a", "another"]
    assert names(file.read_if_changed()) == ["a", "another"]
    file.note_applied()
    assert file.read_if_changed() is None


def test_a_file_that_was_refused_waits_until_it_changes_or_its_time_comes(tmp_path):
    path = tmp_path / "models.json"
    write(path, "a")
    file = ModelsFile(str(path), retry_seconds=3600.0)
    file.read()
    path.write_text("{")
    with pytest.raises(ConfigError, match="expected a ModelServerConfig"):
        file.read_if_changed()
    assert file.read_if_changed() is None
    write(path, "c", "d", "e")
    assert names(file.read_if_changed()) == ["c", "d", "e"]
    path.unlink()
    assert file.read_if_changed() is None
