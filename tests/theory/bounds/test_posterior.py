"""The posterior's step against autograd through its draw; a prior that no row of the bound can move."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call

import margin
from margin import Training, resume
from margin.core.tasks import BINARY, CLASSES, SCORES
from margin.core.types import Batch
from margin.data.examples import Arrays, Rows, Shuffled
from margin.engine.loop import GradientUpdate, State, risk
from margin.runs.training import finish, open_source, prepare, reopen
from margin.theory.bounds.posterior import (
    KEPT,
    OBJECTIVES,
    Posterior,
    boundary_of,
    bounded_loss,
    feed,
    flat,
    other_rows,
    pac_bayes,
    prior_rows,
    put_flat,
    trained,
)

N, DELTA = 40, 0.1


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)).double()


def examples(count: int = N) -> Arrays:
    generator = Generator().manual_seed(1)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return Arrays((x,), torch.arange(count) % 3)


def moved(posterior: Posterior) -> None:
    """Somewhere else than at the prior, each weight differently."""
    generator = Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in (posterior.mean, posterior.log_std):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def by_distributions(mean: torch.Tensor, log_std: torch.Tensor, posterior: Posterior) -> torch.Tensor:
    prior = Normal(posterior.get_buffer("prior_mean"), posterior.scale)
    return kl_divergence(Normal(mean, log_std.exp()), prior).sum()


def test_the_divergence_and_its_gradient() -> None:
    posterior = Posterior(flat(trained(network())), 0.2, torch.arange(3))
    moved(posterior)
    mean, log_std = (p.detach().clone().requires_grad_() for p in (posterior.mean, posterior.log_std))
    expected = by_distributions(mean, log_std, posterior)
    by_mean, by_log_std = torch.autograd.grad(expected, (mean, log_std))
    found = posterior.divergence()
    for value, other in zip(found, (expected.detach(), by_mean, by_log_std), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-10, atol=1e-12)
    assert posterior.kl() == pytest.approx(float(expected.detach()), rel=1e-12)


def grid(r: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The least over a fine grid of the linear form."""
    slopes = torch.linspace(1e-4, 2 - 1e-4, 200_001, dtype=torch.float64)
    return (r / (1 - slopes / 2) + c / (slopes * (1 - slopes / 2))).amin()


def exponential_grid(r: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The least over a fine grid of Catoni's form."""
    slopes = torch.linspace(1e-3, 30, 300_001, dtype=torch.float64)
    return ((1 - (-slopes * r - c).exp()) / (1 - (-slopes).exp())).amin()


def test_each_objective_by_its_definition() -> None:
    """Of r = .1, c = .08: the root form solves R - sqrt(2 R c) = r, Catoni's kl(r || R) = c.

    At r = 0 they are 2c, sqrt(c/2) and 1 - exp(-c). The root form is the linear one at its best slope.
    """
    r, c = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.08, dtype=torch.float64)
    R = float(OBJECTIVES["quadratic"](r, c))
    assert R - math.sqrt(2 * R * 0.08) == pytest.approx(0.1)
    torch.testing.assert_close(OBJECTIVES["quadratic"](r, c), grid(r, c), rtol=1e-8, atol=0)
    assert float(OBJECTIVES["classic"](r, c)) == pytest.approx(0.1 + 0.2)
    torch.testing.assert_close(OBJECTIVES["catoni"](r, c), exponential_grid(r, c), rtol=1e-8, atol=0)
    R = float(OBJECTIVES["catoni"](r, c))
    assert 0.1 * math.log(0.1 / R) + 0.9 * math.log(0.9 / (1 - R)) == pytest.approx(0.08)
    zero = torch.zeros((), dtype=torch.float64)
    assert [float(f(zero, c)) for f in OBJECTIVES.values()] == pytest.approx([0.16, 0.2, 1 - math.exp(-0.08)])
    far = torch.tensor(9.0, dtype=torch.float64)
    assert min(float(f(r, far)) for f in OBJECTIVES.values()) > 1  # not cut off: a gradient is left


def test_catoni_begins_on_the_quadratic_form_where_it_would_be_flat() -> None:
    """At r = .1 the root form is 1 at c = .405, where R - sqrt(2 R c) = r."""
    r = torch.tensor(0.1, dtype=torch.float64)
    below, above, far = (torch.tensor(c, dtype=torch.float64) for c in (0.4049, 0.4051, 60.0))
    torch.testing.assert_close(OBJECTIVES["catoni"](r, below), exponential_grid(r, below), rtol=1e-8, atol=0)
    for c in (above, far):
        assert float(OBJECTIVES["catoni"](r, c)) == pytest.approx(float(OBJECTIVES["quadratic"](r, c)))
    assert float(exponential_grid(r, far)) == pytest.approx(1, abs=1e-12)
    by_risk, by_kl = torch.autograd.grad(
        OBJECTIVES["catoni"](r.requires_grad_(), far.requires_grad_()), (r, far)
    )
    assert float(by_risk) > 0.9 and float(by_kl) > 0.9  # Catoni's own would be exp(-60)


def test_a_record_of_an_earlier_name_goes_on(tmp_path: Path) -> None:
    """A run whose record says "lambda", interrupted half-way: it ends as that of the quadratic bound."""
    found = []
    for bound in ("quadratic", "lambda"):
        arguments = {"options": {"hidden": [6]}, "step": RULE, "rule": "pac_bayes"}
        job = prepare("mlp", open_source("iris"), arguments, TRAINING, tmp_path / bound)
        finish(replace(job, plan=replace(job.plan, total=3 * job.plan.total // 4)))
        file = job.run.path / "run.yaml"
        lines = file.read_text().splitlines()
        assert any(line.strip() == "bound: quadratic" for line in lines)
        kept = [line for line in lines if not line.startswith("digest:")]  # one without a digest is taken
        file.write_text("\n".join(kept).replace("bound: quadratic", f"bound: {bound}") + "\n")
        again = resume(job.run.path)
        assert again.record["arguments"]["step"]["bound"] == "quadratic"
        found.append(again.metrics["certificate"])
    assert found[0] == found[1]
    arguments = {"options": {}, "step": {**RULE, "bound": "lambda"}, "rule": "pac_bayes"}
    with pytest.raises(ValueError, match="bound must be one of quadratic, classic, catoni: got 'lambda'"):
        prepare("mlp", open_source("iris"), arguments, TRAINING, tmp_path / "new")


@pytest.mark.parametrize(
    ("bound", "count", "p_min"), [("quadratic", N, 0.2), ("classic", N, 0.2), ("catoni", 10 * N, 1e-3)]
)
def test_a_step_descends_on_the_bound_through_its_draw(bound: str, count: int, p_min: float) -> None:
    """The gradient that it leaves is autograd's of the whole objective; the optimizer has another order."""
    model, data = network(), examples(count)
    ordered = sorted(model.parameters(), key=lambda p: -p.ndim)
    state = State({"model": model}, {"": torch.optim.SGD(ordered, lr=0.1)}, step=1, seed=4)
    share = {"prior_share": 0.25, "prior_time": 0.0}
    step = pac_bayes(
        risk(CLASSES), GradientUpdate(), CLASSES, data, 10, "none", "", bound=bound, delta=DELTA,  # type: ignore[arg-type]
        prior_std=0.2, p_min=p_min, **share,
    )  # fmt: skip
    rows = prior_rows(count, 0.25, 4)
    posterior = state.kept(KEPT, lambda: Posterior(flat(trained(model)), 0.2, rows, 10))
    assert isinstance(posterior, Posterior)
    moved(posterior)
    put_flat(trained(model), posterior.mean)
    mean, log_std = (p.detach().clone().requires_grad_() for p in (posterior.mean, posterior.log_std))
    drawn: list[torch.Tensor] = []
    own = posterior.draw
    posterior.draw = lambda generator: drawn.append(own(generator)[0]) or (drawn[0], drawn[0] - own_mean)  # type: ignore[method-assign,func-returns-value]
    own_mean = posterior.mean.detach().clone()
    batch = data.take(torch.arange(7), Generator())
    metrics = step(state, batch)
    z = (drawn[0] - mean.detach()) / log_std.detach().exp()
    weights = (mean + log_std.exp() * z).split([p.numel() for p in model.parameters()])
    named = {k: w.view_as(p) for (k, p), w in zip(model.named_parameters(), weights, strict=True)}
    p = functional_call(model, named, batch.inputs).softmax(-1)[torch.arange(7), batch.targets]
    r = (-p.log()).clamp(max=-math.log(p_min)).mean() / -math.log(p_min)
    n = count - count // 4
    c = (by_distributions(mean, log_std, posterior) + math.log(2 * math.sqrt(n) / DELTA)) / n
    formed = exponential_grid(r, c) if bound == "catoni" else OBJECTIVES[bound](r, c)
    assert bound != "catoni" or float(OBJECTIVES["quadratic"](r, c).detach()) < 1  # else that stands in
    expected = torch.autograd.grad(formed, (mean, log_std))
    torch.testing.assert_close(posterior.mean.grad, expected[0], rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(posterior.log_std.grad, expected[1], rtol=1e-4, atol=1e-9)
    assert metrics["loss"] == pytest.approx(float(formed.detach()), rel=1e-6)
    rates = [group["lr"] for group in state.optimizers[KEPT].param_groups]
    assert rates == pytest.approx([0.01 * 0.2 * 9 / 10, 0.01 * 9 / 10])  # 9 of 10 steps are left
    assert torch.equal(flat(trained(model)), posterior.mean.detach())
    assert not torch.equal(posterior.mean.detach(), own_mean)


def test_the_loss_is_cut_off_at_the_least_probability() -> None:
    """Of p = 1/2, .9 and 1e-9 with p_min = 1/8: 1/3, ln(1/.9)/ln 8 and 1; binary logits as two classes."""
    p = torch.tensor([0.5, 0.9, 1e-9], dtype=torch.float64)
    batch = Batch((p.logit(),), torch.ones(3, dtype=torch.long))
    found = bounded_loss(BINARY, 1 / 8)(nn.Identity(), batch, Generator())
    assert found.tolist() == pytest.approx([1 / 3, -math.log(0.9) / math.log(8), 1.0])


def test_the_rows_are_parted_by_the_seed() -> None:
    rows = prior_rows(101, 0.3, 5)
    others = other_rows(101, rows)
    assert len(rows) == 30
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(101))
    assert not torch.equal(rows, prior_rows(101, 0.3, 6))
    assert not torch.equal(rows, torch.arange(30))
    assert len(prior_rows(101, 0.0, 5)) == 0


def test_each_part_of_the_steps_meets_its_own_rows() -> None:
    data = Arrays((torch.arange(100.0).unsqueeze(1),), torch.zeros(100, dtype=torch.long))
    phases = feed(
        data, 7, lambda part: Shuffled(part, 8, seed=7), lambda per_epoch: 6 * per_epoch, prior_share=0.3
    )
    seen = {True: set(), False: set()}  # type: ignore[var-annotated]
    for step in range(6 * phases.per_epoch):
        seen[step < phases.boundary] |= set(phases(step).inputs[0][:, 0].int().tolist())
    rows = prior_rows(100, 0.3, 7)
    assert phases.boundary == 27
    assert seen[True] == set(rows.tolist())
    assert seen[False] == set(other_rows(100, rows).tolist())
    assert phases.per_epoch == 9  # of the 70 rows of the bound
    alone = feed(data, 7, lambda part: Shuffled(part, 8, seed=7), lambda per_epoch: 10, prior_share=0.0)
    assert (alone.boundary, alone.per_epoch, boundary_of(10, 0.0)) == (5, 13, 0)
    assert len(alone(0).inputs[0]) == 8 and alone(5).targets is not None


RULE = {"prior_share": 0.4, "prior_time": 0.5, "draws": 50}
NORMED = {"hidden": [6], "norm": "batch"}
TRAINING = Training(epochs=4, batch_size=16, seed=2, lr=0.05)


def test_no_row_of_the_bound_moves_the_prior(tmp_path: Path) -> None:
    """Other inputs and labels there: the same prior, its statistics and its standardization, to the bit."""
    data = open_source("iris")
    part = data.splits["train"]
    free = other_rows(len(part), prior_rows(len(part), 0.4, 2))
    x, y = part.inputs[0].clone(), part.targets.clone()
    x[free], y[free] = 100 * x[free].flip(0) + 7, y[free].flip(0)
    other = replace(data, splits={**data.splits, "train": Arrays((x,), y)}, fingerprint="other")
    found = []
    for name, one in {"a": data, "b": other}.items():
        arguments = {"options": NORMED, "step": RULE, "rule": "pac_bayes"}
        job = prepare("mlp", one, arguments, TRAINING, tmp_path / name)
        half = job.plan.total // 2
        finish(replace(job, plan=replace(job.plan, total=half)))
        found.append({k: v.clone() for k, v in job.state.model.state_dict().items()})
    assert found[0].keys() == found[1].keys()
    assert [k for k in found[0] if not torch.equal(found[0][k], found[1][k])] == []


def test_the_prior_is_where_its_training_left_it_and_statistics_stay(tmp_path: Path) -> None:
    arguments = {"options": NORMED, "step": RULE, "rule": "pac_bayes"}
    job = prepare("mlp", open_source("iris"), arguments, TRAINING, tmp_path / "r")
    kept: list[dict[str, torch.Tensor]] = []
    half = job.plan.total // 2

    def look(state: State, metrics: object) -> None:
        if state.step == half:
            kept.append({k: v.clone() for k, v in state.model.state_dict().items()})

    finish(job, hooks=[look])
    posterior = job.state.modules[KEPT]
    names = [name for name, _ in job.state.model.named_parameters()]
    assert torch.equal(posterior.get_buffer("prior_mean"), flat([kept[0][name] for name in names]))
    for name, buffer in job.state.model.named_buffers():
        assert torch.equal(buffer, kept[0][name]), name
    assert not torch.equal(posterior.get_parameter("mean"), posterior.get_buffer("prior_mean"))
    assert set(posterior.get_buffer("prior_rows").tolist()) == set(prior_rows(90, 0.4, 2).tolist())


def test_without_rows_the_prior_is_at_the_initial_weights(tmp_path: Path) -> None:
    """The mean begins where plain descent on all rows has come; statistics stay as they were drawn."""
    options = {"prior_share": 0.0, "prior_time": 0.5, "draws": 50, "posterior_lr": 1e-9}
    arguments = {"options": NORMED, "step": options, "rule": "pac_bayes"}
    job = prepare("mlp", open_source("iris"), arguments, replace(TRAINING, scale="none"), tmp_path / "r")
    first = {name: value.clone() for name, value in job.state.model.state_dict().items()}
    run = finish(job)
    posterior = job.state.modules[KEPT]
    names = [name for name, _ in job.state.model.named_parameters()]
    assert torch.equal(posterior.get_buffer("prior_mean"), flat([first[name] for name in names]))
    moved_by = posterior.get_parameter("mean").detach() - posterior.get_buffer("prior_mean")
    assert float(moved_by.norm()) > 0.5
    assert all(torch.equal(buffer, first[name]) for name, buffer in job.state.model.named_buffers())
    assert run.metrics["certificate_rows"] == 90


def test_more_steps_are_refused_once_the_prior_is_chosen(tmp_path: Path) -> None:
    options = {"options": NORMED, "step": RULE, "rule": "pac_bayes"}
    run = finish(prepare("mlp", open_source("iris"), options, TRAINING, tmp_path / "r"))
    with pytest.raises(ValueError, match="it was chosen of"):
        finish(reopen(run, None, Training(epochs=6)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta must lie in"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"prior_share": 1.0}, r"prior_share must be in \[0, 1\)"),
        ({"prior_share": 0.001}, "prior_share must leave rows"),
        ({"prior_share": 0.0}, "set scale none"),
        ({"prior_time": 1.0}, "prior_time must be in"),
        ({"prior_std": 0.0}, "prior_std must be positive"),
        ({"posterior_lr": math.inf}, "posterior_lr must be positive"),
        ({"p_min": 1.0}, "p_min must lie in"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"bound": "hoeffding"}, "bound must be"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        margin.train("mlp", "iris", rule="pac_bayes", step=options, training=TRAINING, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_what_it_cannot_certify_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="states none"):
        bounded_loss(SCORES, 0.1)
    loss, model = bounded_loss(CLASSES, 0.1), nn.Identity()
    x, y = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="these have weights"):
        loss(model, Batch((x,), y, torch.tensor([1.0, 2.0])), Generator())
    with pytest.raises(ValueError, match="one class label an example"):
        loss(model, Batch((x,), y.double()), Generator())
    averaged = replace(TRAINING, average=0.9)
    with pytest.raises(ValueError, match="average must be 0"):
        margin.train("mlp", "iris", rule="pac_bayes", training=averaged, out=tmp_path / "a")
    other = margin.train("mlp", "iris", training=Training(max_steps=1), out=tmp_path / "o")
    with pytest.raises(ValueError, match="must not have seen the rows"):
        margin.train(
            "mlp", "iris", rule="pac_bayes", training=replace(TRAINING, init_from=str(other.path)),
            out=tmp_path / "r",
        )  # fmt: skip


def test_some_rows_of_examples() -> None:
    rows = Rows(examples(), torch.tensor([3, 9, 4]))
    assert len(rows) == 3
    batch = rows.take(torch.tensor([2, 0]), Generator())
    assert torch.equal(batch.inputs[0], examples().inputs[0][[4, 3]])
