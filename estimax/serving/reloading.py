"""A new configuration before it is in force: loaded beside the old one, or refused.

    staged = StagedReload(configs, models)
    ...                                 # list folders, load what is wanted
    staged.holds()                      # False: wait; raises: refuse
    gone = staged.commit(models)        # now it is in force; unload what is gone
    staged.withdraw()                   # does nothing after `commit`

A model whose folder stays keeps its record, and gets the new configuration as `asked`.
Other models are records of their own, `joining`, until the configuration is in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from estimax.serving.config import ModelConfig
from estimax.serving.lifecycle import Model
from estimax.serving.status import Code, ServingError, not_found


class StagedReload:
    """The models of a configuration that is asked for.

    Args:
      configs: The configuration.
      current: The models in force. Those that are asked to change are marked.
    """

    def __init__(
        self, configs: Sequence[ModelConfig], current: Mapping[str, Model]
    ) -> None:
        self.models: dict[str, Model] = {}
        self.joining: list[Model] = []
        self._asked: list[Model] = []
        self._configs = configs
        for config in configs:
            model = current.get(config.name)
            if model is None or model.config.base_path != config.base_path:
                model = Model(config, asked=config, is_joining=True)
                self.joining.append(model)
                self._asked.append(model)
            elif model.config != config or not model.available():
                self._ask(model, config)
            self.models[config.name] = model

    def paths(self) -> list[str]:
        """Return the folders to read before anything is decided."""
        asked = (model for model in self._asked if not _is_relabelled(model))
        return list(dict.fromkeys(model.config.base_path for model in asked))

    def holds(self) -> bool:
        """Return whether everything that was asked for is loaded.

        Raises:
          ServingError: It will not be.
        """
        # Look at every model: a failure is told without waiting for other models.
        held = [_holds(model) for model in self._asked]
        return all(held)

    def commit(self, current: Mapping[str, Model]) -> list[Model]:
        """Put the configuration in force; return the models that are gone."""
        for config in self._configs:
            model = self.models[config.name]
            model.config, model.asked, model.is_joining = config, None, False
        kept = list(self.models.values())
        return [model for model in current.values() if model not in kept]

    def withdraw(self) -> None:
        """Ask for nothing any more."""
        for model in self._asked:
            model.asked = None

    def _ask(self, model: Model, config: ModelConfig) -> None:
        model.asked = config
        self._asked.append(model)
        for version in model.versions.values():
            # Who asks for a version that failed before wants to see it tried again.
            version.begins_again |= version.has_failed


def _holds(model: Model) -> bool:
    asked = model.asked
    assert asked is not None
    if _is_relabelled(model):
        _check_labels(model, asked, [version.number for version in model.available()])
        return True
    if model.listing_error is not None:
        error = model.listing_error
        raise ServingError(error.code, f"model {asked.name!r}: {error}")
    found = model.found or {}
    wanted = model.chosen_by(asked)
    policy = asked.version_policy
    missing = set(policy.versions) - found.keys() if policy.kind == "specific" else ()
    if missing or not wanted:
        what = f"version {min(missing)}" if missing else "a version"
        raise not_found(
            f"model {asked.name!r}: expected {what} in {asked.base_path}, found: "
            f"{', '.join(map(str, found)) or 'none'}."
        )
    _check_labels(model, asked, wanted)
    for number in wanted:
        version = model.versions[number]
        if version.has_failed and version.error is not None:
            error = version.error
            raise ServingError(error.code, f"model {asked.name!r}: {error}")
    return all(model.versions[number].loaded is not None for number in wanted)


def _is_relabelled(model: Model) -> bool:
    """Return whether a model that answers is asked for new labels only.

    Then a newer version that cannot be loaded is no reason to refuse them.
    """
    return (
        model.asked is not None
        and not model.is_joining
        and model.asked.version_policy == model.config.version_policy
        and bool(model.available())
    )


def _check_labels(model: Model, asked: ModelConfig, wanted: Sequence[int]) -> None:
    """Raise if a label in use would move to a version that is not served."""
    ready = {version.number for version in model.available()}
    for label, number in asked.version_labels.items():
        before = model.config.version_labels.get(label)
        if before in ready and number != before and number not in wanted:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"model {asked.name!r}: label {label!r} points to version {before}, "
                f"which is ready, and cannot move to version {number}, which is not.",
            )
