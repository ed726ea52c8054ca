import pytest


@pytest.fixture(autouse=True)
def quick_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diffusion's density by 4 passes in place of 64, a flow's by 4 steps in place of 20.

    What a contract asks of it (its type, that it is the same in any batch, after a resumption and with and
    without an evaluation) holds of the estimate by any number of draws; what the numbers are worth is asked
    in ``generative/diffusion``.
    """
    monkeypatch.setattr("margin.generative.diffusion.model.PAIRS", 2)
    monkeypatch.setattr("margin.generative.diffusion.flow_matching.DENSITY_STEPS", 4)
