"""Results do not change unnoticed."""

import json

import numpy as np
import pytest
from conftest import EVERY

import golden
from onco_gym.interfaces.registry import DECIDE


@pytest.mark.parametrize("decide", DECIDE)
@pytest.mark.parametrize("env_id", EVERY)
def test_golden_rollouts(env_id, decide):
    stored = json.loads(golden.path(env_id).read_text())[decide]
    for then, now in zip(stored, golden.record(env_id, decide), strict=True):
        for key in ("patient", "steps", "cycles", "died"):
            assert then[key] == now[key], (
                f"{key} changed; if it was meant to, renew with tools/golden.py and say why in CHANGELOG.md"
            )
        assert then["return"] == pytest.approx(now["return"], abs=2e-3)
        np.testing.assert_allclose(then["seen"], now["seen"], atol=2e-3)
