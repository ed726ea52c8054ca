"""What a critic proves: bounds against known laws, tight where it is optimal; what it refuses to say."""

import math

import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict, without_loss
from margin.core.tasks import CRITIC
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.generative.gan.claims import (
    demo,
    distance,
    divergence,
    has_its_classes,
    is_adversarial,
    matched,
    saturation,
)
from margin.generative.gan.critic import Critic
from margin.generative.gan.implicit import Implicit
from margin.generative.gan.model import GAN, ConditionalGAN, conditional_points
from margin.nn.preprocessed import Preprocessed


class Features(nn.Module):
    """Features x -> scale x + shift, large enough that the leaky ReLU does nothing."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + 1000


def gaussian(slope: float, *, mean: float = 0.0, scale: float = 1.0, spread: float = 1.0) -> GAN:
    """Samples N(mean, spread^2) and a critic ``slope * x`` for one number x."""
    generator = Implicit(nn.Linear(1, 1), noise=1)
    critic = Critic(Features(scale), 1)
    with torch.no_grad():
        generator.network.weight.fill_(spread)
        generator.network.bias.fill_(mean)
        critic.head.weight.fill_(slope / scale)
        critic.head.bias.fill_(-1000 * slope / scale)
    return GAN(generator, critic)


def of(model: nn.Module, x: Tensor, labels: Tensor | None = None, **options: Tensor) -> Subject:
    return Subject(
        model=Preprocessed(nn.Identity(), model),
        test=[Batch((part,), None if labels is None else labels[i : i + 100]) for i, part in chunks(x)],
        task=CRITIC,
        objective=without_loss,
    )


def chunks(x: Tensor) -> list[tuple[int, Tensor]]:
    return [(100 * i, part) for i, part in enumerate(x.split(100))]


def normal(n: int, mean: float = 0.0, seed: int = 5) -> Tensor:
    return mean + torch.randn(n, 1, generator=Generator().manual_seed(seed))


def jensen_shannon(mean: float) -> float:
    """Of N(0, 1) and N(mean, 1), by quadrature."""
    x = torch.linspace(-12, 12 + mean, 200_001, dtype=torch.float64)
    p, q = (torch.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (0.0, mean))
    m = (p + q) / 2
    return float(torch.trapezoid(torch.xlogy(p, p / m) + torch.xlogy(q, q / m), x)) / 2


@pytest.mark.parametrize("slope", [-3.0, -1.0, -0.2, 0.5])
def test_the_divergence_is_bounded_from_below(slope: float) -> None:
    """Any slope bounds it; within 4 standard errors, seed fixed: each fails with probability 3e-5."""
    model = gaussian(slope, mean=2.0)
    with torch.no_grad():
        model.critic.head.bias.add_(1.0)
    found = divergence(of(model, normal(4000)))
    assert found.verdict == Verdict.MEASURED
    assert float(found.value - 4 * found.stderr) < jensen_shannon(2.0)


def test_the_bound_is_tight_at_the_log_ratio() -> None:
    """log p - log q = -2 x + 2 of N(0, 1) and N(2, 1)."""
    model = gaussian(-2.0, mean=2.0)
    with torch.no_grad():
        model.critic.head.bias.add_(2.0)
    found = divergence(of(model, normal(8000)))
    assert abs(float(found.value) - jensen_shannon(2.0)) < 4 * float(found.stderr)
    assert float(found.stderr) < 0.01
    assert "has won" not in found.statement


def test_a_discriminator_that_tells_nothing_proves_nothing() -> None:
    found = divergence(of(gaussian(0.0), normal(100)))
    assert float(found.value) == pytest.approx(0.0, abs=1e-12)
    assert float(found.stderr) == 0


def test_it_is_said_that_a_discriminator_has_won() -> None:
    model = gaussian(-1.0, mean=30.0)
    with torch.no_grad():
        model.critic.head.bias.add_(15.0)
    found = divergence(of(model, normal(500)))
    assert "It has won" in found.statement
    assert float(found.value) == pytest.approx(math.log(2), abs=0.01)


def test_numbers_that_are_none_fail() -> None:
    for ask in (divergence, distance, saturation):
        assert ask(of(gaussian(math.nan), normal(100))).verdict == Verdict.FAILED
    for ask in (divergence, distance):
        found = ask(of(gaussian(1.0), normal(1)))
        assert found.failure == "there are fewer than two held-out examples"
    assert distance(of(gaussian(0.0), normal(50))).failure.startswith("the critic is flat")
    assert saturation(of(gaussian(0.0), normal(50))).failure == "the critic is flat at every sample"


def test_the_distance_is_scipys_and_a_linear_critic_of_a_shift_attains_it() -> None:
    """Of two sets on a line, one right of the other, D(x) = -3 x loses nothing: gap / slope = W1."""
    x = normal(300)
    found = distance(of(gaussian(-3.0, mean=20.0), x))
    z = torch.randn(300, 1, generator=Generator().manual_seed(0))
    exact = wasserstein_distance(x[:, 0].numpy(), (z[:, 0] + 20).numpy())
    assert float(found.high) == pytest.approx(exact, rel=1e-6)
    assert float(found.low) == pytest.approx(-exact, rel=1e-6)
    assert float(found.value) == pytest.approx(exact, rel=1e-6)
    assert found.verdict == Verdict.HOLDS
    assert found.premises[0].status == "sampled"


@pytest.mark.parametrize("seed", range(5))
def test_no_critic_finds_more_than_the_distance(seed: int) -> None:
    torch.manual_seed(seed)
    critic = Critic(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32)), 32)
    model = GAN(Implicit(nn.Linear(3, 2), noise=3), critic)
    with torch.no_grad():
        for p in critic.parameters():
            p.mul_(3)
    found = distance(of(model, torch.randn(200, 2, generator=Generator().manual_seed(seed))))
    assert found.verdict == Verdict.HOLDS
    assert abs(float(found.value)) < float(found.high)


def test_a_slope_missed_would_be_told() -> None:
    """A cliff narrower than the points asked: the gap is above what the slopes that were seen allow."""
    model = gaussian(1.0, mean=5.0)

    class Cliff(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1000 + torch.where(x < 2.5005, 0.001 * x, 0.001 * x - 1e4 * (x.clamp(max=2.501) - 2.5005))

    model.critic.network = Cliff()
    with torch.no_grad():
        model.critic.head.bias.fill_(-1000)
    found = distance(of(model, normal(20)))
    assert found.verdict == Verdict.VIOLATED
    assert found.premises[0].status == "sampled"


def test_examples_are_matched_within_their_class() -> None:
    x, fake = torch.tensor([[0.0], [1.0], [10.0]]), torch.tensor([[10.0], [1.0], [0.0]])
    order, mean = matched(x, fake, None)
    assert order.tolist() == [2, 1, 0]
    assert mean == 0
    order, mean = matched(x, fake, torch.tensor([0, 1, 0]))
    assert order.tolist() == [2, 1, 0]
    order, mean = matched(x, fake, torch.tensor([0, 0, 1]))
    assert set(order.tolist()[:2]) == {0, 1}
    assert order.tolist()[2] == 2
    assert mean == pytest.approx((10 + 0 + 10) / 3)


def test_the_pull_of_the_objectives_differs_by_the_odds() -> None:
    found = saturation(of(gaussian(1.5, mean=-4.0), normal(64)))
    assert found.verdict == Verdict.HOLDS
    assert len(found.value) == 64
    z = torch.randn(64, 1, generator=Generator().manual_seed(0))
    torch.testing.assert_close(found.value, 1.5 * (z[:, 0].double() - 4), atol=1e-6, rtol=0)
    assert "0.0" in found.statement


def test_padding_and_the_users_units_do_not_matter() -> None:
    x = normal(200)
    plain = divergence(of(gaussian(1.0), x))
    weight = torch.ones(250)
    weight[200:] = 0
    padded = Batch((torch.cat((x, torch.full((50, 1), 1e6))) * 2 + 7,), weight=weight)
    scaled = Preprocessed(Standardize(torch.tensor([7.0]), torch.tensor([2.0])), gaussian(1.0))
    found = divergence(Subject(model=scaled, test=[padded], task=CRITIC, objective=without_loss))
    torch.testing.assert_close(found.value, plain.value, atol=1e-5, rtol=0)


def test_a_conditional_model_is_judged_with_its_classes() -> None:
    torch.manual_seed(0)
    model = conditional_points(2, 3, hidden=(8,))
    x, labels = torch.randn(120, 2), torch.arange(120) % 3
    assert isinstance(model, ConditionalGAN)
    assert has_its_classes(of(model, x, labels))
    assert not has_its_classes(of(model, x))
    assert not has_its_classes(of(model, x, labels.float()))
    assert has_its_classes(of(gaussian(1.0), x[:, :1]))
    assert "each with its class" in divergence(of(model, x, labels)).statement
    assert "class" not in divergence(of(gaussian(1.0), x[:, :1])).statement
    for ask in (divergence, distance, saturation):
        assert ask(of(model, x, labels)).verdict in (Verdict.MEASURED, Verdict.HOLDS)
        with pytest.raises(ValueError, match="with class labels: the data have none"):
            ask(of(model, x))


def test_only_adversaries_are_asked() -> None:
    assert is_adversarial(demo())
    assert not is_adversarial(Subject(model=nn.Linear(1, 1), test=(), task=CRITIC, objective=without_loss))
