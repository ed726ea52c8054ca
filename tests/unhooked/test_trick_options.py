"""Options of the tricks of a training outside their choices are refused in words, from Python too."""

import pytest

from margin.core.tasks import CLASSES
from margin.data.sampling.curriculum import Pacing
from margin.engine.loop import risk
from margin.engine.objectives import mixed


def test_a_mixing_and_a_pacing_of_no_known_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="kind must be mixup or cutmix: got 'cut'"):
        mixed(risk(CLASSES), "cut")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="pacing must be one of uniform, linear, root, step, exponential: got 'log'"
    ):
        Pacing("log")  # type: ignore[arg-type]
