"""Results do not change unnoticed."""

import json

import numpy as np
import pytest
from conftest import EVERY

import golden


@pytest.mark.parametrize("env_id", EVERY)
def test_golden_rollouts(env_id):
    stored = json.loads(golden.path(env_id).read_text())
    for then, now in zip(stored, golden.record(env_id), strict=True):
        for key in ("patient", "cycles", "died"):
            assert then[key] == now[key], (
                f"{key} changed; if it was meant to, renew with tools/golden.py and say why in CHANGELOG.md"
            )
        assert then["return"] == pytest.approx(now["return"], abs=2e-3)
        np.testing.assert_allclose(then["seen"], now["seen"], atol=2e-3)
