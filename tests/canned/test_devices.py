"""Every ready model trains and evaluates on eight devices as on one."""

import numpy as np
import pytest
from ready_models import FEATURES, MODELS, TREES

import estimax as ex


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *TREES])
def test_a_ready_model_gives_what_it_gives_on_one_device(name, tmp_path):
    build, labels = {**MODELS, **TREES}[name]

    def results(**settings):
        folder = str(tmp_path / f"on_{settings.get('devices', 1)}")
        config = ex.RunConfig(folder, 1, save_summary_steps=0, **settings)
        model = build(config)
        data = FEATURES if labels is None else (FEATURES, labels)
        model.train(lambda: data, steps=4)
        return model.evaluate(lambda: data, steps=1)

    expected, found = results(), results(devices=8, shard_tables_above=0)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
