"""What a network knows: its bound, the best affine map, the film, on laws where the answers are known."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.auditing.report.plots import plot
from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.generative.diffusion.chain_claims import demo
from margin.generative.diffusion.exact import ExactDenoiser, Mixture
from margin.generative.diffusion.model import Diffusion
from margin.generative.diffusion.network_claims import affine, bound, film
from margin.generative.diffusion.process import linear_schedule, zero_terminal


def of(law: Mixture, steps: int = 100, network: nn.Module | None = None, count: int = 400) -> Subject:
    schedule = linear_schedule(steps)
    model = Diffusion(network or ExactDenoiser(law, schedule), schedule, (law.means.shape[1],)).double()
    test, train = (Batch((law.sample(count, Generator().manual_seed(s)),)) for s in (0, 1))
    return dataclasses.replace(demo(), model=model, test=[test], train=[train])


def two_modes() -> Mixture:
    return Mixture(
        torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double(), 0.01 * torch.eye(2).double().expand(2, 2, 2)
    )


class Zero(nn.Module):
    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x)


def test_the_bound_of_the_exact_network_is_near_minus_log_p_and_its_terms_add_up() -> None:
    """Within 4.5 standard errors and the .2 nats that 100 steps cost."""
    law = Mixture(torch.zeros(1, 2).double(), torch.tensor([[[0.5, 0.2], [0.2, 0.4]]]).double())
    subject = of(law)
    found = bound(subject)
    known = -float(law.log_prob(subject.test[0].inputs[0]).mean())
    assert found.stderr is not None
    assert float(found.value[0]) == pytest.approx(known, abs=4.5 * float(found.stderr[0]) + 0.2)
    assert float(found.value[1:].sum()) == pytest.approx(float(found.value[0]), abs=1e-9)
    assert found.verdict == Verdict.MEASURED


def test_a_chain_of_one_step_has_two_terms() -> None:
    found = bound(of(two_modes(), steps=1))
    assert float(found.value[2]) == 0.0
    assert float(found.value[1] + found.value[3]) == pytest.approx(float(found.value[0]), abs=1e-12)
    assert float(found.value[0]) > -float(two_modes().log_prob(two_modes().sample(400, Generator())).mean())


def test_no_gaussian_is_told_beside_the_bound_where_a_feature_never_varies() -> None:
    law = Mixture(torch.zeros(1, 2).double(), torch.tensor([[[0.5, 0.0], [0.0, 0.0]]]).double())
    assert "covariance is singular" in bound(of(law, steps=5)).statement
    assert "A Gaussian of their moments has" in bound(of(two_modes(), steps=5)).statement


def test_the_last_term_of_a_silent_network_is_a_gaussian_about_x1() -> None:
    """-log N(x_0; x_1 / sqrt(a), beta): d/2 log(2 pi beta) + d/(2 alpha), in the mean."""
    found = bound(of(two_modes(), network=Zero()))
    beta = float(linear_schedule(100).beta[1])
    assert found.stderr is not None
    expected = math.log(2 * math.pi * beta) + 1 / (1 - beta)
    assert float(found.value[3]) == pytest.approx(expected, abs=4.5 * float(found.stderr[3]))


def test_of_gaussian_data_no_network_beats_the_affine_map() -> None:
    law = Mixture(torch.tensor([[1.0, -1.0]]).double(), torch.tensor([[[0.5, 0.2], [0.2, 0.4]]]).double())
    found = affine(of(law))
    assert found.stderr is not None
    assert bool(((found.value - 1).abs() < 4.5 * found.stderr + 0.02).all())


def test_of_two_modes_the_exact_network_beats_it_and_a_silent_one_does_not() -> None:
    assert float(affine(of(two_modes())).value.min()) < 0.7
    silent = affine(of(two_modes(), network=Zero()))
    assert float(silent.value.min()) > 0.99
    assert silent.verdict == Verdict.MEASURED  # that some network does is true all the same


def test_the_affine_error_is_known_at_an_end_without_data() -> None:
    """There nothing but the mean can be said."""
    schedule = zero_terminal(linear_schedule(10))

    class Mean(nn.Module):
        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            return torch.zeros_like(x)

    law = Mixture(torch.zeros(1, 2).double(), torch.eye(2).double()[None])
    subject = of(law)
    model = Diffusion(Mean(), schedule, (2,), parametrization="x0").double()
    found = affine(dataclasses.replace(subject, model=model))
    assert float(found.value[-1]) == pytest.approx(1, abs=0.02)
    assert bool(found.value.isfinite().all())


def test_the_film_of_the_exact_network_has_the_energies_of_the_chain_forth() -> None:
    found = film(of(two_modes()))
    assert found.stderr is not None
    assert bool(((found.value - 1).abs() < 4.5 * found.stderr + 0.05).all())
    shown = found.curves["film"]
    assert shown.shape == (6, 256, 2)
    assert found.curves["film times"].tolist()[0] == 100
    assert found.curves["film times"].tolist()[-1] == 0
    near = (shown[-1][:, None] - torch.tensor([[-1.0, 0.0], [1.0, 0.0]]).double()).norm(dim=2).amin(1)
    assert float((near < 0.5).double().mean()) > 0.95
    assert "<svg" in plot("margin.generative.diffusion.figures:film", found, "p")


def test_the_film_of_a_silent_network_strays() -> None:
    """Without a pull to the data x grows by 1 / sqrt(alpha) a step; to miss a limit is no violation."""
    found = film(of(two_modes(), network=Zero()))
    assert found.verdict == Verdict.MEASURED
    assert float(found.value[-1]) > 10
