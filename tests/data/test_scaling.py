"""The map in front of the model: ends of the domain by hand, the remedy where no domain is known."""

import pytest
import torch

from margin.core.types import Domain
from margin.data.examples import Arrays, Data
from margin.data.preprocess import Standardize, fit_standardize
from margin.data.scaling import Scale, rescaled

X = torch.tensor([[0.0, 4.0], [16.0, 8.0]])


def data(domain: Domain | None) -> Data:
    return Data(
        name="levels",
        splits={"train": Arrays((X,))},
        spec={"in_features": 2},
        preprocess=fit_standardize(X, per="feature"),
        domain=domain,
    )


BOX = Domain(torch.tensor(0.0), torch.tensor(16.0))
SIDES = Domain(torch.tensor([0.0, 4.0]), torch.tensor([16.0, 8.0]))


@pytest.mark.parametrize(
    ("scale", "domain", "expected"),
    [
        ("unit", BOX, [[0.0, 0.25], [1.0, 0.5]]),
        ("symmetric", BOX, [[-1.0, -0.5], [1.0, 0.0]]),
        ("unit", SIDES, [[0.0, 0.0], [1.0, 1.0]]),
        ("none", None, X.tolist()),
        ("standard", None, [[-1.0, -1.0], [1.0, 1.0]]),
    ],
)
def test_the_values_by_hand(scale: Scale, domain: Domain | None, expected: list[list[float]]) -> None:
    preprocess = rescaled(data(domain), scale).preprocess
    assert preprocess(X).tolist() == expected
    if isinstance(preprocess, Standardize):
        torch.testing.assert_close(preprocess.inverse(preprocess(X)), X)


def test_without_a_domain_the_message_names_the_option_that_gives_it() -> None:
    with pytest.raises(ValueError, match=r"levels: set --data.domain low,high, or --scale none"):
        rescaled(data(None), "unit")
