"""Monte-Carlo dropout: moments in closed form, one mask for all examples, dropout in layers or functions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.bayes.ensembles.learning import negative_log_likelihood
from margin.bayes.ensembles.mc_dropout import DropoutClassifier, DropoutRegressor, masked
from margin.math.probability.mixtures import law_of


class Functional(nn.Module):
    """Dropout as a function, and batch normalization beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(F.dropout(self.norm(x), 0.5, self.training))


def linear(p: float = 0.3) -> nn.Module:
    return nn.Sequential(nn.Dropout(p), nn.Linear(4, 2)).double()


def test_mean_and_variance_are_those_of_independent_masks() -> None:
    """Of 20,000 masks: w . (x m / (1 - p)) has variance p / (1 - p) sum w^2 x^2; five standard errors."""
    net, x = linear(), torch.randn(3, 4, dtype=torch.float64)
    found = masked(net, x, 20_000)[..., 0]
    w = net[1].weight[0].detach()
    variance = 0.3 / 0.7 * ((x * w) ** 2).sum(1)
    error = (variance / 20_000).sqrt()
    assert bool(((found.mean(0) - net.eval()(x)[:, 0]).abs() < 5 * error).all())
    assert torch.allclose(found.var(0), variance, rtol=0.06)


def test_a_mask_is_one_for_all_examples_and_the_same_in_every_batch() -> None:
    net, x = linear(), torch.randn(6, 4, dtype=torch.float64)
    every = masked(net, x, 10)
    assert torch.allclose(masked(net, x[2:4], 10), every[:, 2:4])
    assert torch.allclose(masked(net, x[:1].expand(5, 4), 10), every[:, :1].expand(10, 5, 2))
    assert not torch.allclose(every[0], every[1])


def test_asking_leaves_no_trace() -> None:
    net = Functional()
    net.last.eval()
    before, flags = torch.get_rng_state(), [m.training for m in net.modules()]
    buffers = [b.clone() for b in net.buffers()]
    found = masked(net, torch.randn(5, 4), 4)
    assert not torch.equal(found[0], found[1])
    after = torch.get_rng_state()
    assert [m.training for m in net.modules()] == flags
    assert all(torch.equal(a, b) for a, b in zip(buffers, net.buffers(), strict=True))
    torch.set_rng_state(before)
    torch.randn(5, 4)
    assert torch.equal(after, torch.get_rng_state())


def test_a_network_without_dropout_is_reported() -> None:
    with pytest.raises(ValueError, match="found no dropout: 7 passes in training mode agree"):
        masked(nn.Linear(4, 2), torch.randn(3, 4), 7)
    with pytest.raises(ValueError, match="samples must be at least 2: got 1"):
        DropoutClassifier(linear, 2, samples=1)


def test_probabilities_and_laws_are_means_over_masks() -> None:
    x = torch.randn(5, 4, dtype=torch.float64)
    classes = DropoutClassifier(linear, 2, samples=9).double().eval()
    expected = masked(classes.net, x, 9).softmax(-1).mean(0)
    assert torch.allclose(classes(x).exp(), expected)
    values = DropoutRegressor(linear, samples=9).double().eval()
    outputs = masked(values.net, x, 9)
    law = values.predictive(x)
    assert torch.allclose(values(x), outputs[..., 0].mean(0)) and torch.allclose(law.mean, values(x))
    between = outputs[..., 0].var(0, correction=0)
    assert torch.allclose(law.variance, (F.softplus(outputs[..., 1]) + 1e-6).mean(0) + between)
    assert values.train().components(x).shape == (1, 5, 2)


def test_a_known_noise_is_that_of_every_value_and_its_loss_the_squared_error() -> None:
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    model = DropoutRegressor(linear, samples=9, noise=0.3).double()
    means = masked(model.eval().net, x, 9)[..., 0]
    law = model.predictive(x)
    assert torch.allclose(law.variance, 0.3 + means.var(0, correction=0), rtol=1e-9)
    components = model.components(x)
    losses = negative_log_likelihood(law_of(components), y)
    assert torch.allclose(losses - losses[0, 0], ((y - means) ** 2 - (y - means)[0, 0] ** 2) / 0.6)
    for noise in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="noise must be above 1e-06 and finite: got"):
            DropoutRegressor(linear, noise=noise)


@pytest.mark.parametrize("layer", [nn.Dropout1d(0.5), nn.Dropout2d(0.5)])
def test_whole_channels_are_dropped_at_once(layer: nn.Module) -> None:
    shape = (3, 6, 5) if isinstance(layer, nn.Dropout1d) else (3, 6, 5, 2)
    found = masked(layer, torch.ones(shape), 40)
    kept = found.flatten(3)
    assert bool((kept == kept[..., :1]).all()) and set(found.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(found[:, 0], found[:, 2])
