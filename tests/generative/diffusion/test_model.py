"""Diffusion as a model: its bound against closed forms, its samples' law, what it refuses, T = 1."""

import copy
import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Generator, Tensor, nn

from margin import Training, train
from margin.data.sets.tiny import tables as tiny
from margin.engine.loop import NonFiniteError
from margin.generative.diffusion.gaussian_denoiser import ExactDenoiser, Mixture
from margin.generative.diffusion.model import SAMPLERS, STOPS, Diffusion, Path, Sampler
from margin.generative.diffusion.parametrizations import Parametrization, target
from margin.generative.diffusion.points import conditional_points, points
from margin.generative.diffusion.schedules import (
    Beta,
    Schedule,
    Variance,
    linear_schedule,
    schedule_of,
    zero_terminal,
)

LAW = Mixture(torch.tensor([[2.0, -1.0]]).double(), torch.tensor([[[0.25, 0.1], [0.1, 0.5]]]).double())


class Exact(nn.Module):
    """The exact network of a law, whatever it is to predict."""

    def __init__(self, schedule: Schedule, kind: Parametrization, law: Mixture = LAW) -> None:
        super().__init__()
        self.exact, self.schedule, self.kind = ExactDenoiser(law, schedule), schedule, kind

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        level = self.schedule.alpha_bar[t.long()]
        if float(level.min()) == 0:
            x0 = self.exact.law.means.to(x).expand_as(x)
            return x0 if self.kind == "x0" else -x0
        eps = self.exact(x, t, label)
        x0 = (x - (1 - level).sqrt().to(x)[:, None] * eps) / level.sqrt().to(x)[:, None]
        return target(x0, eps, level, self.kind)


def exact(schedule: Schedule, kind: Parametrization = "eps", variance: Variance = "large") -> Diffusion:
    made = Diffusion(Exact(schedule, kind), schedule, (2,), parametrization=kind, variance=variance)
    return made.double()


def rows(count: int, seed: int = 0) -> Tensor:
    return LAW.sample(count, Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", get_args(Parametrization))
def test_the_estimate_of_the_bound_is_unbiased(kind: Parametrization) -> None:
    """Against the sum over all times of a T of 8, noise by noise: 4.5 standard errors (7e-6 each)."""
    schedule = linear_schedule(8)
    model = exact(schedule, kind)
    x = rows(1)[:, :2]
    many = x.expand(20_000, 2)
    g = Generator().manual_seed(1)
    model.weighting = "bound"
    drawn = model.loss(many, g)
    total = _by_terms(model, x, 20_000)
    assert float(drawn.mean()) == pytest.approx(
        float(total.mean()), abs=4.5 * float((drawn.var() + total.var()).sqrt()) / math.sqrt(20_000)
    )


def _by_terms(model: Diffusion, x: Tensor, count: int) -> Tensor:
    """-ELBO as its definition has it, one chain of noises an element: KL of Gaussians by torch."""
    from torch.distributions import MultivariateNormal, kl_divergence

    g, schedule = Generator().manual_seed(2), model.schedule
    x0, eye = x.expand(count, 2), torch.eye(2).double()
    a = schedule.alpha_bar
    zero = torch.zeros(count, 2).double()
    total = kl_divergence(
        MultivariateNormal(a[-1].sqrt() * x0, (1 - a[-1]) * eye), MultivariateNormal(zero, eye)
    )
    for t in range(1, schedule.steps + 1):
        eps = torch.randn(count, 2, generator=g).double()
        x_t = a[t].sqrt() * x0 + (1 - a[t]).sqrt() * eps
        seen = model.eps(x_t, torch.full((count,), t))
        alpha = a[t] / a[t - 1]
        mu = (x_t - (1 - alpha) / (1 - a[t]).sqrt() * seen) / alpha.sqrt()
        p = MultivariateNormal(mu, (1 - alpha) * eye)
        if t == 1:
            total = total - p.log_prob(x0)
            continue
        left = (1 - a[t - 1]) / (1 - a[t])
        mean = a[t - 1].sqrt() * (1 - alpha) / (1 - a[t]) * x0 + alpha.sqrt() * left * x_t
        total = total + kl_divergence(MultivariateNormal(mean, left * (1 - alpha) * eye), p)
    return total


@pytest.mark.parametrize("kind", get_args(Parametrization))
def test_with_the_exact_network_the_bound_is_the_log_density(kind: Parametrization) -> None:
    """T = 1,000 and 5 draws: in the mean within 5 standard errors (t of 4: 7e-3 a kind, the seeds are fixed).

    From row to row the error of one draw varies by less than .1 nats: their order is that of the density.
    """
    model, x = exact(linear_schedule(1000), kind), rows(50)
    known = LAW.log_prob(x)
    errors = torch.stack([model.bound(x, generator=Generator().manual_seed(s)) - known for s in range(5)])
    means = errors.mean(1)
    assert abs(float(means.mean())) < 5 * float(means.std()) / math.sqrt(5)
    assert float(means.std()) < 1
    assert float(errors.std(1).max()) < 0.1


def test_of_standard_normal_data_the_estimate_has_no_error() -> None:
    """With |x|^2 = d noise and opposite noise cancel, and log N(x; 0, I) is left, whatever the draws."""
    law = Mixture(torch.zeros(1, 2).double(), torch.eye(2).double()[None])
    schedule, x = linear_schedule(50), torch.tensor([[1.0, 1.0], [math.sqrt(2), 0.0]]).double()
    model = Diffusion(Exact(schedule, "eps", law), schedule, (2,)).double()
    for seed in range(3):
        found = model.bound(x, generator=Generator().manual_seed(seed), pairs=2)
        torch.testing.assert_close(found, law.log_prob(x), rtol=1e-6, atol=1e-6)


def test_forward_is_the_same_for_a_row_wherever_it_stands() -> None:
    torch.manual_seed(0)
    model = points(3, hidden=16, steps=20).eval()
    with torch.no_grad():
        model.network.leave.weight.normal_()  # type: ignore[union-attr, operator]
    x = torch.randn(6, 3)
    together = model(x)
    torch.testing.assert_close(model(x[2:4]), together[2:4])
    assert torch.equal(model(x), together)
    torch.testing.assert_close(model(x.reshape(6, 3, 1)), together)  # any axes
    generator = Generator().manual_seed(3)
    assert not torch.equal(model.bound(x, generator=generator), together)


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("kind", ["eps", "v"])
def test_any_number_of_steps_samples_and_bounds(steps: int, kind: Parametrization) -> None:
    torch.manual_seed(0)
    model = points(2, hidden=8, steps=steps, parametrization=kind)
    for count in {1, steps}:
        x = model.sample(4, generator=Generator().manual_seed(0), steps=count)
        assert x.shape == (4, 2)
        assert bool(x.isfinite().all())
    assert model(torch.randn(3, 2)).shape == (3,)
    assert bool(model.loss(torch.randn(5, 2), Generator()).isfinite().all())
    for wrong in (0, steps + 1):
        with pytest.raises(
            ValueError, match=f"steps must be from 1 to the {steps} of the schedule: got {wrong}"
        ):
            model.sample(4, generator=Generator(), steps=wrong)


@pytest.mark.parametrize("kind", get_args(Parametrization))
def test_samples_have_the_datas_law(kind: Parametrization) -> None:
    """The exact network, 100 steps: moments of 1,000 samples, 5 standard errors (3e-6) and .02."""
    n = 1000
    x = exact(linear_schedule(100), kind).sample(n, generator=Generator().manual_seed(0), sampler="ddpm")
    assert bool(((x.mean(0) - LAW.means[0]).abs() < 5 * x.std(0) / math.sqrt(n) + 0.01).all())
    wanted = torch.tensor([[0.25, 0.1], [0.1, 0.5]]).double()
    assert bool(((x.T.cov() - wanted).abs() < 5 * 0.5 * math.sqrt(2 / n) + 0.02).all())


@pytest.mark.parametrize("kind", ["x0", "v"])
@pytest.mark.parametrize("steps", [1, 2, 200])
def test_an_end_without_data_is_sampled_from(kind: Parametrization, steps: int) -> None:
    """At T nothing is known: the mean; at 1 step that is all."""
    model = exact(zero_terminal(linear_schedule(200)), kind)
    x = model.sample(2000, generator=Generator().manual_seed(0), steps=steps)
    torch.testing.assert_close(x.mean(0), LAW.means[0], rtol=0, atol=0.1)
    if steps == 1:
        assert float(x.std(0).max()) < 1e-12
    if steps == 200:
        assert float(x.var(0)[1]) == pytest.approx(0.5, abs=0.08)
    x = rows(100)
    assert bool(model(x).isfinite().all())


@pytest.mark.parametrize("sampler", get_args(Sampler))
@pytest.mark.parametrize(("steps", "count"), [(1, 1), (9, 1), (9, 9), (9, None), (60, None)])
def test_every_sampler_stops_as_often_as_is_asked(sampler: Sampler, steps: int, count: int | None) -> None:
    """From one time to all; the predicted noise and v at an end with and without data; samples are finite."""
    asked: list[int] = []
    for schedule, kind in ((linear_schedule(steps), "eps"), (linear_schedule(steps), "v")):
        model = exact(schedule, kind)  # type: ignore[arg-type]
        model.network.register_forward_pre_hook(lambda _, given: asked.append(int(given[1][0])))
        x = model.sample(3, generator=Generator().manual_seed(0), sampler=sampler, steps=count)
        assert x.shape == (3, 2)
        stops = count if count is not None else steps if sampler == "ddpm" else min(steps, STOPS)
        assert len(asked) == (2 * stops - 1 if sampler == "heun" else stops)
        assert (max(asked), min(asked)) == (steps, 1 if stops > 1 else steps)
        asked.clear()
    for wrong in (0, steps + 1, -1):
        with pytest.raises(
            ValueError, match=f"steps must be from 1 to the {steps} of the schedule: got {wrong}"
        ):
            model.sample(1, generator=Generator(), sampler=sampler, steps=wrong)


@pytest.mark.parametrize("sampler", get_args(Sampler))
def test_every_sampler_passes_an_end_without_data(sampler: Sampler) -> None:
    """1,000 samples of 60 steps: the mean within 5 standard errors and .05; the variance within a fifth."""
    model = exact(zero_terminal(linear_schedule(200)), "v")
    n = 1000
    x = model.sample(n, generator=Generator().manual_seed(0), sampler=sampler, steps=60)
    wanted = torch.tensor([0.25, 0.5]).double()
    assert bool(((x.mean(0) - LAW.means[0]).abs() < 5 * (wanted / n).sqrt() + 0.05).all())
    torch.testing.assert_close(x.var(0), wanted, rtol=0.2 + 5 * math.sqrt(2 / n), atol=0)
    one = model.sample(5, generator=Generator().manual_seed(0), sampler=sampler, steps=1)
    torch.testing.assert_close(one, LAW.means.expand(5, 2))


def test_eta_is_ddims_and_in_range() -> None:
    model = points(2, hidden=8, steps=5)
    for sampler in set(SAMPLERS) - {"ddim"}:
        with pytest.raises(ValueError, match=r"eta is the noise of sampler ddim: got eta=0\.5 with"):
            model.sample(2, generator=Generator(), sampler=sampler, eta=0.5)
    for eta in (-0.5, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"eta must be in \[0, 1\]: got"):
            model.sample(2, generator=Generator(), eta=eta)
    with pytest.raises(Exception, match=r"(?s)sampler.*plms"):  # ours, or that of the checked annotation
        model.sample(2, generator=Generator(), sampler="plms")  # type: ignore[arg-type]
    with torch.no_grad():
        model.network.leave.weight.normal_()  # type: ignore[union-attr, operator]
    drawn = [model.sample(2, generator=Generator().manual_seed(0), eta=eta) for eta in (0.0, 0.0, 1.0)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("sampler", get_args(Path))
def test_a_path_runs_between_two_samples(sampler: Path) -> None:
    """Its ends are the samples of the noise that the seed draws first; one class; numbers go straight."""
    model = exact(linear_schedule(30))
    path = model.interpolate(5, generator=Generator().manual_seed(4), sampler=sampler)
    ends = model.sample(2, generator=Generator().manual_seed(4), sampler=sampler)
    torch.testing.assert_close(path[[0, -1]], ends)
    narrow = points(1, hidden=8, steps=4)
    assert narrow.interpolate(3, generator=Generator().manual_seed(0), sampler=sampler).shape == (3, 1)
    told = conditional_points(2, 3, hidden=8, steps=4)
    seen: list[Tensor] = []
    told.network.register_forward_pre_hook(lambda _, given: seen.append(given[2]))
    told.interpolate(4, generator=Generator(), sampler=sampler)
    told.interpolate(4, generator=Generator(), sampler=sampler, label=2)
    assert (seen[0].tolist(), seen[-1].tolist()) == ([0] * 4, [2] * 4)


@pytest.mark.parametrize("sampler", ["ddpm", "sde"])
def test_a_path_needs_a_sampler_without_noise(sampler: Sampler) -> None:
    with pytest.raises(ValueError, match=f"a path needs a sampler without noise .*: got sampler={sampler}"):
        points(2, hidden=8, steps=4).interpolate(3, generator=Generator(), sampler=sampler)


def test_noise_is_not_predicted_where_nothing_else_is_left() -> None:
    with pytest.raises(ValueError, match='"eps" only where alpha_bar is above 0'):
        points(2, terminal="zero", parametrization="eps")
    assert points(2, terminal="zero", steps=10).schedule.alpha_bar[-1] == 0


def test_guidance_and_labels_need_classes() -> None:
    model = points(2, hidden=8, steps=5)
    with pytest.raises(ValueError, match="need a model trained on classes: got guidance=2"):
        model.sample(2, generator=Generator(), guidance=2.0)
    with pytest.raises(ValueError, match="need a model trained on classes: got label=0"):
        model.sample(2, generator=Generator(), label=0)
    told = conditional_points(2, 3, hidden=8, steps=5)
    for label in (-1, 3):
        with pytest.raises(ValueError, match=f"label must be from 0 to 2: got {label}"):
            told.sample(2, generator=Generator(), label=label)
    assert told.labels(7, 0.0, None).tolist() == [0, 1, 2, 0, 1, 2, 0]  # type: ignore[union-attr]
    assert told.labels(2, 1.0, 2).tolist() == [2, 2]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"drop must be a probability: got 1.5"):
        conditional_points(2, 3, drop=1.5)


def test_a_class_is_sampled_and_guidance_leans_from_the_others() -> None:
    """Two classes of the exact mixture at -1 and 1; w = -1 draws from both."""
    law = Mixture(torch.tensor([[-2.0], [2.0]]).double(), torch.full((2, 1, 1), 0.1).double())
    schedule = linear_schedule(40)
    model = Diffusion(ExactDenoiser(law, schedule), schedule, (1,), num_classes=2).double()
    means = []
    for label, guidance in ((0, 0.0), (1, 0.0), (1, 3.0), (1, -1.0)):
        x = model.sample(200, generator=Generator().manual_seed(0), label=label, guidance=guidance)
        means.append(float(x.mean()))
    assert means[0] == pytest.approx(-2, abs=0.15)
    assert means[1] == pytest.approx(2, abs=0.15)
    assert means[2] > means[1]
    assert abs(means[3]) < 0.6
    turns = model.sample(300, generator=Generator().manual_seed(0))
    assert float(turns[::2].max()) < 0 < float(turns[1::2].min())


def test_labels_are_dropped_as_often_as_is_said() -> None:
    """2,000 labels, 10 %: within 4.5 standard errors (7e-6); 0 and 1 exactly."""
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            assert label is not None
            seen.append(label)
            return torch.zeros_like(x)

    for drop in (0.1, 0.0, 1.0):
        model = Diffusion(Spy(), linear_schedule(5), (2,), num_classes=3, drop=drop)
        model.loss(torch.zeros(2000, 2), Generator().manual_seed(0), torch.ones(2000).long())
        model(torch.zeros(1, 2))
        none = float((seen[0] == 3).double().mean())
        assert none == pytest.approx(drop, abs=4.5 * math.sqrt(drop * (1 - drop) / 2000))
        assert bool((seen[-1] == 3).all())  # the density is that of no class
        seen.clear()


def test_the_simple_loss_is_the_squared_error_at_even_times() -> None:
    """A network of 0 has d in the mean, 2,000 rows within 4.5 standard errors; times even over the batch."""
    times: list[Tensor] = []

    class Zero(nn.Module):
        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            times.append(t)
            return torch.zeros_like(x)

    model = Diffusion(Zero(), linear_schedule(50), (3,))
    loss = model.loss(torch.randn(2000, 3), Generator().manual_seed(0))
    assert float(loss.mean()) == pytest.approx(3, abs=4.5 * math.sqrt(6 / 2000))
    assert torch.bincount(times[0].long(), minlength=51)[1:].tolist() == [40] * 50


def test_a_score_is_minus_the_noise_over_its_deviation() -> None:
    model, x = exact(linear_schedule(40)), rows(5)
    t = torch.tensor([1, 10, 20, 30, 40])
    level = model.schedule.alpha_bar[t]
    torch.testing.assert_close(model.score(x, t), LAW.score(x, level), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.denoised(x, t), LAW.denoised(x, level), rtol=1e-8, atol=1e-8)


class Broken(nn.Module):
    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return torch.full_like(x, math.nan)


def test_numbers_that_are_not_finite_stop() -> None:
    """Not black images."""
    model = Diffusion(Broken(), linear_schedule(3), (1, 4, 4))
    with pytest.raises(ValueError, match="samples must be finite: got 2 of 2 that are not"):
        model.sample(2, generator=Generator())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_training_whose_numbers_explode_stops(precision: str, tmp_path: object) -> None:
    training = Training(max_steps=20, lr=1e30, precision=precision, clip=math.inf, threads=1)  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError):
        train("generative/diffusion", tiny.values(), {"hidden": 8}, training, out=f"{tmp_path}/run")


@pytest.mark.parametrize("name", ["diffusion", "conditional_diffusion"])
def test_it_learns(name: str, tmp_path: object) -> None:
    """From d, what a network of 0 costs, to less than 3/4 of it."""
    data = tiny.moons()
    training = Training(max_steps=80, lr=1e-2, batch_size=24, threads=1, average=0.9, evaluate_every=50)
    run = train(
        f"generative/{name}",
        data,
        {"hidden": 32, "depth": 1, "parametrization": "eps"},
        training,
        out=f"{tmp_path}/run",
    )
    assert run.metrics["val_loss"] < 1.5


def test_schedules_of_options_are_those_of_the_functions() -> None:
    for beta in get_args(Beta):
        made = points(2, hidden=8, steps=9, beta=beta, parametrization="v", terminal="zero")
        assert torch.equal(made.schedule.alpha_bar, schedule_of(9, beta, "zero").alpha_bar)
    other = copy.deepcopy(made)
    assert other.schedule.steps == 9
    assert replace(made.schedule).steps == 9


def test_images_of_any_size_pass_through() -> None:
    """Odd, oblong, one channel: the shape is the data's."""
    network = nn.Conv2d(1, 1, 3, padding=1)

    class OfImages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = network

        def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
            out: Tensor = self.convolution(x)
            return out

    model = Diffusion(OfImages(), linear_schedule(4), (1, 5, 3))
    assert model.sample(2, generator=Generator()).shape == (2, 1, 5, 3)
    assert model(torch.randn(2, 1, 5, 3)).shape == (2,)
