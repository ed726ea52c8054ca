"""The certificate by hand in NumPy and SciPy, its coverage, and what the audit makes of its record."""

import math
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm
from torch import Generator, nn

import margin
from margin import Training
from margin.auditing.subject.trained import subject_of_run
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.examples import InOrder, Rows
from margin.math.seeds import mix
from margin.runs.inference import predictions
from margin.runs.training import open_source
from margin.theory.bounds.certificate import (
    certified,
    demo,
    drawn_errors,
    drawn_once,
    errors_by_example,
    held_out_risk,
    posterior_of_run,
    size_for,
)
from margin.theory.bounds.ladder import DRAWN, ladder
from margin.theory.bounds.pac_bayes import averaged_risk
from margin.theory.bounds.posterior import PURPOSE, Posterior, flat, other_rows, trained


def inverse(q: float, c: float) -> float:
    """The inverse of the divergence of coins, by bisection."""

    def over(p: float) -> float:
        first = q * math.log(q / p) if q else 0.0
        return first + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0) - c

    return float(brentq(over, q, 1 - 1e-15, xtol=1e-15))


def by_hand(risk: float, draws: float, kl: float, n: int, delta: float) -> float:
    above = inverse(risk, math.log(2 / (0.2 * delta)) / draws)
    return inverse(above, (kl + math.log(2 * math.sqrt(n) / (0.8 * delta))) / n)


def test_the_bound_by_hand() -> None:
    """Batches of 4, 4 and 2, twice: the risk weighs rows, and the draws are worth 20 / 4 = 5."""
    errors = torch.tensor([0.25, 0.0, 0.5, 0.0, 0.25, 0.0])
    sizes = torch.tensor([4.0, 4.0, 2.0, 4.0, 4.0, 2.0])
    found = certified(errors, sizes, 1.5, 200, 0.1)
    assert found.risk == pytest.approx(0.15)
    assert found.draws == 5
    assert found.bound == pytest.approx(by_hand(0.15, 5, 1.5, 200, 0.1), abs=1e-12)
    assert found.metrics() == {
        "certificate": found.bound, "certificate_risk": found.risk, "certificate_kl": 1.5,
        "certificate_rows": 200.0, "certificate_draws": 5.0, "certificate_delta": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie in"):
        certified(torch.zeros(2), torch.ones(2), 1.0, 10, delta)


def test_losses_outside_of_the_unit_interval_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        certified(torch.tensor([-0.5, 0.0]), torch.ones(2), 1.0, 10, 0.1)
    with pytest.raises(ValueError, match="sizes must be above 0"):
        averaged_risk(torch.zeros(2), 4, 0.1, sizes=torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="at least one"):
        averaged_risk(torch.zeros(0), 4, 0.1)


def failing(sizes: list[float], chances: tuple[float, ...], delta: float, *, counted: bool) -> float:
    """The probability, over all outcomes, that the bound lies below the mean; draws as counted, or worth."""
    weights = np.array(sizes) / sum(sizes)
    total = 0.0
    for outcome in product((0, 1), repeat=len(sizes)):
        chance = math.prod(p if e else 1 - p for p, e in zip(chances, outcome, strict=True))
        errors = torch.tensor(outcome, dtype=torch.float64)
        mean = torch.full((len(sizes),), float(weights @ np.array(outcome)))
        bound = (
            averaged_risk(mean, 4, delta)
            if counted
            else averaged_risk(errors, 4, delta, sizes=torch.tensor(sizes))
        )
        total += chance * (float(bound) < weights @ np.array(chances) - 1e-12)
    return total


def test_draws_of_unequal_batches_are_worth_fewer() -> None:
    """Over all outcomes: 10 rows by one network and 1 by each of 5 count 1.5 networks, not 6."""
    sizes, delta = [10.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.2
    grid = [(p, *[q] * 5) for p in (0.1, 0.3, 0.5, 0.7, 0.9) for q in (0.05, 0.5, 0.95)]
    assert max(failing(sizes, chances, delta, counted=False) for chances in grid) <= delta
    assert max(failing(sizes, chances, delta, counted=True) for chances in grid) > delta


def test_it_covers_the_risk_in_at_least_its_share_of_samples() -> None:
    """1,000 samples of 50 coins, for each the posterior N(m, s^2) of one weight that is certified lowest.

    The classifier says 1 where the weight is above 0. More failures than the 1e-4 quantile of
    Bin(1000, delta) have a probability below 1e-4.
    """
    rng, n, delta, truth = np.random.default_rng(0), 50, 0.1, 0.35
    generator = Generator().manual_seed(0)
    means = (0.0, 1.5)
    known: dict[tuple[float, float, float], float] = {}
    failures = 0
    for _ in range(1000):
        ones = rng.binomial(n, truth) / n
        best, risk = 1.0, 0.5
        for mean in means:
            says = norm.cdf(mean)
            share = says * (1 - ones) + (1 - says) * ones
            errors = torch.where(torch.rand(200, generator=generator) < says, 1 - ones, ones)
            assert abs(float(errors.mean()) - share) < 0.3
            key = (mean, ones, float(errors.sum()))
            if key not in known:
                known[key] = certified(errors, torch.ones(200), 0.5 * mean**2, n, delta).bound
            found = known[key]
            if found < best:
                best, risk = found, says * (1 - truth) + (1 - says) * truth
        failures += best < risk
    assert failures <= binom.ppf(1 - 1e-4, 1000, delta)


RULE = {"prior_share": 0.4, "draws": 400, "delta": 0.1, "prior_std": 0.5}
TRAINING = Training(epochs=30, batch_size=16, seed=2, lr=0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> margin.Run:
    place = tmp_path_factory.mktemp("run") / "r"
    return margin.train(
        "mlp", "iris", {"hidden": [6]}, rule="pac_bayes", step=RULE, training=TRAINING, out=place
    )


def test_a_training_ends_with_the_certificate_of_its_law(run: margin.Run) -> None:
    """By NumPy from the checkpoint: the network by hand, its divergence, the inverse twice."""
    model, metrics = margin.load(run), run.metrics
    found = posterior_of_run(run, model)
    assert found is not None
    posterior, record = found
    assert record == metrics
    mean, std, prior = (
        t.detach().double().numpy()
        for t in (posterior.mean, posterior.log_std.exp(), posterior.get_buffer("prior_mean"))
    )
    s0 = posterior.scale
    kl = float(np.sum(np.log(s0 / std) + (std**2 + (mean - prior) ** 2) / (2 * s0**2) - 0.5))
    assert metrics["certificate_kl"] == pytest.approx(kl, rel=1e-6)
    subject = subject_of_run(run)
    x = torch.cat([b.inputs[0] for b in subject.train]).double().numpy()
    y = torch.cat([b.targets for b in subject.train]).numpy()  # type: ignore[misc]
    free = other_rows(len(y), posterior.get_buffer("prior_rows")).numpy()
    front = model.preprocess
    z = (x[free] - front.mean.double().numpy()) / front.std.double().numpy()
    rng, wrong = np.random.default_rng(1), []
    shapes = [p.shape for p in model.parameters()]
    assert [tuple(s) for s in shapes] == [(6, 4), (6,), (3, 6), (3,)]
    for _ in range(4000):
        w = mean + std * rng.standard_normal(len(mean))
        W, b, V, a = (part.reshape(s) for part, s in zip(np.split(w, [24, 30, 48]), shapes, strict=True))
        said = (np.maximum(z @ W.T + b, 0) @ V.T + a).argmax(1)
        wrong.append((said != y[free]).mean())
    spread = np.std(wrong) * math.sqrt(1 / 4000 + 1 / 400)
    assert abs(metrics["certificate_risk"] - np.mean(wrong)) < 4 * spread  # fails once in 16,000
    assert metrics["certificate_rows"] == len(free) == 54
    assert metrics["certificate_draws"] == 400  # one batch holds all rows
    shares = drawn_shares(run, model, posterior, free)
    assert shares.mean() == pytest.approx(metrics["certificate_risk"])
    log = math.log(4 / 0.02)
    by_spread = shares.mean() + math.sqrt(2 * shares.var(ddof=1) * log / 400) + 7 * log / (3 * 399)
    coins = inverse(metrics["certificate_risk"], math.log(2 / 0.02) / 400)
    expected = inverse(min(by_spread, coins), (kl + math.log(2 * math.sqrt(len(free)) / 0.08)) / len(free))
    assert by_spread < coins
    assert metrics["certificate"] == pytest.approx(expected, abs=1e-9)


def drawn_shares(run: margin.Run, model: nn.Module, posterior: Posterior, free: np.ndarray) -> np.ndarray:
    """The errors of the networks that the training drew."""
    batches = InOrder(Rows(open_source("iris").splits["train"], torch.tensor(free)), 128)
    generator = Generator().manual_seed(mix(TRAINING.seed or 0, PURPOSE, 2))
    found = drawn_errors(model, posterior, batches, CLASSES, generator, 400)
    return np.array([wrong / size for wrong, size in found])


def test_a_training_that_is_killed_while_it_is_certified_is_certified_when_it_goes_on(
    run: margin.Run, tmp_path: Path
) -> None:
    """All steps are done, so that none asks for the law that lies in the checkpoint."""
    copy = shutil.copytree(run.path, tmp_path / "copy")
    (copy / "metrics.json").unlink()
    assert margin.resume(copy).metrics == run.metrics


def test_the_audit_holds_it_against_the_held_out_examples(run: margin.Run) -> None:
    subject = subject_of_run(run)
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    finding = held_out_risk(subject)
    assert finding.verdict in (Verdict.HOLDS, Verdict.INCONCLUSIVE)  # of 38 examples
    assert [p.status for p in finding.premises] == ["assumed", "proved", "proved", "assumed"]
    assert f"At most {run.metrics['certificate']:.1%} of new examples" in finding.remarks[0]
    assert all(torch.equal(before[name], value) for name, value in subject.model.state_dict().items())


def test_predictions_are_the_means_and_say_so(run: margin.Run) -> None:
    told: list[str] = []
    columns = predictions(run, "iris", tell=told.append)
    subject = subject_of_run(run)
    said = torch.cat([margin.load(run)(*batch.inputs).argmax(1) for batch in subject.test])
    assert columns["class"] == [subject.class_names[k] for k in said]
    assert told == [
        "predictions are those of the law's mean; its certificate speaks of networks drawn from it"
    ]


def test_it_is_the_record_of_another_rule_that_has_none(tmp_path: Path) -> None:
    other = margin.train("mlp", "iris", training=Training(max_steps=2), out=tmp_path / "r")
    assert subject_of_run(other).certified is None


def changed(subject: Subject, **record: float) -> Subject:
    assert subject.certified is not None
    posterior, kept = subject.certified
    return replace(subject, certified=(posterior, {**kept, **record}))


def test_a_record_that_does_not_fit_refutes_a_premise() -> None:
    """A prior that saw a row of the bound, a row twice, or another law than the certificate's."""
    subject = demo()
    assert held_out_risk(subject).verdict is Verdict.HOLDS
    assert held_out_risk(changed(subject, certificate_rows=61.0)).verdict is Verdict.UNFOUNDED
    assert held_out_risk(changed(subject, certificate_kl=3.0)).verdict is Verdict.UNFOUNDED
    assert subject.certified is not None
    posterior = subject.certified[0]
    posterior.get_buffer("prior_rows")[0] = 5
    found = held_out_risk(subject)
    assert found.verdict is Verdict.UNFOUNDED
    assert [p.status for p in found.premises] == ["assumed", "refuted", "proved", "assumed"]


def test_one_drawn_network_has_a_bound_by_its_density_ratio() -> None:
    """Densities by torch, errors by the formula of the line, on the 60 rows that the prior has not seen."""
    subject = demo()
    posterior, _ = subject.certified
    with torch.no_grad():
        posterior.log_std.copy_(torch.tensor([-1.0, -2.0, -1.5, -2.5]))
        posterior.get_buffer("prior_mean").add_(torch.tensor([0.2, -0.1, 0.05, 0.0]))
    w = posterior.draw(Generator().manual_seed(2021))[0]
    law = torch.distributions.Normal(posterior.mean.double(), posterior.log_std.double().exp())
    prior = torch.distributions.Normal(posterior.get_buffer("prior_mean").double(), posterior.scale)
    ratio = float((law.log_prob(w.double()) - prior.log_prob(w.double())).sum().detach())
    assert posterior.log_ratio(w) == pytest.approx(ratio, rel=1e-9) and ratio > 1
    x = torch.cat([batch.inputs[0] for batch in subject.train])[:, 0]
    y = torch.cat([batch.targets for batch in subject.train])
    wrong = ((w[0] * x + w[2] < w[1] * x + w[3]).long() != y).double()
    assert wrong[40:].mean() != wrong.mean()
    expected = inverse(float(wrong[40:].mean()), (ratio + math.log(2 * math.sqrt(60) / 0.03)) / 60)
    assert drawn_once(subject, 0.03) == pytest.approx(expected, abs=1e-9)
    before = flat(trained(subject.model)).clone()
    found = ladder(subject)
    rung = dict(zip(found.labels, found.value.tolist(), strict=True))[DRAWN]
    share = 0.05 * 0.999 / 5  # of five rungs
    assert rung == pytest.approx(drawn_once(subject, share), abs=1e-12)
    assert torch.equal(flat(trained(subject.model)), before)
    assert drawn_once(replace(subject, certified=None), 0.03) is None
    assert DRAWN not in ladder(replace(subject, certified=None)).labels
    other = changed(subject, certificate_rows=59.0)
    assert drawn_once(other, 0.03) is None and DRAWN not in ladder(other).labels


def test_a_certificate_of_nearly_one_is_vacuous() -> None:
    assert held_out_risk(changed(demo(), certificate=0.9999)).verdict is Verdict.VACUOUS


def test_the_interval_of_the_share_is_of_examples_and_of_networks() -> None:
    """4 standard errors of the networks' mean beyond the binomial interval of 60 examples; printed, 2."""
    subject = demo()
    posterior = subject.certified[0]
    with torch.no_grad():
        posterior.log_std.fill_(0.0)
    found = held_out_risk(subject)
    generator = Generator().manual_seed(2021)
    shares = errors_by_example(subject.model, posterior, subject.test, CLASSES, generator, 32).mean(1).numpy()
    spread = shares.std(ddof=1) / math.sqrt(32)
    assert spread > 0.002
    for ends, level, times in ((found.interval, 1 - 1e-4, 4), (found.printed, 0.95, 2)):
        errors, tail = 60 * shares.mean(), (1 - level) / 2
        low = beta.ppf(tail, errors, 60 - errors + 1) - times * spread
        high = beta.ppf(1 - tail, errors + 1, 60 - errors) + times * spread
        assert [float(end) for end in ends] == pytest.approx([max(low, 0), min(high, 1)], abs=1e-9)


def test_errors_that_no_certificate_allows_violate_it() -> None:
    subject = demo()
    other = [batch._replace(targets=1 - batch.targets) for batch in subject.test]
    assert held_out_risk(replace(subject, test=other)).verdict is Verdict.VIOLATED


def test_it_says_how_many_rows_would_say_more_than_a_constant() -> None:
    """Of two classes, half each: at risk .2 and 30 nats 60 rows say nothing; doubled until they do."""
    subject = changed(demo(), certificate=0.9, certificate_risk=0.2, certificate_kl=30.0)
    (said,) = size_for(subject, subject.certified[1])  # type: ignore[index]
    labels = torch.cat([batch.targets for batch in subject.test])  # type: ignore[misc]
    constant = 1 - float(torch.bincount(labels).max()) / len(labels)
    enough = [n for n in (60, 120, 240, 480, 960)
              if inverse(0.2, (30 + math.log(2 * math.sqrt(n) / 0.05)) / n) < constant]  # fmt: skip
    assert f"about {min(enough):,} rows would" in said
    assert size_for(changed(demo(), certificate=0.1), {**subject.certified[1], "certificate": 0.1}) == ()  # type: ignore[index]
    (none,) = size_for(subject, {**subject.certified[1], "certificate_risk": 0.6})  # type: ignore[index]
    assert "no better" in none


def test_a_network_is_drawn_for_each_batch_and_each_pass() -> None:
    """Of weights that are certain all draws are one network; of wide ones no two batches share theirs."""
    subject = demo()
    posterior = subject.certified[0]  # type: ignore[index]
    assert isinstance(posterior, Posterior)
    x, y = torch.ones(4, 1), torch.tensor([1, 1, 1, 1])
    batches = [Batch((x,), y)] * 3
    with torch.no_grad():
        posterior.log_std.fill_(-30.0)
    sure = drawn_errors(subject.model, posterior, batches, subject.task, Generator(), 5)
    assert sure == [(0, 4)] * 15
    with torch.no_grad():
        posterior.log_std.fill_(3.0)
    wide = drawn_errors(subject.model, posterior, batches, subject.task, Generator(), 5)
    assert {wrong for wrong, _ in wide} == {0, 4}
    assert len({tuple(wide[i : i + 5]) for i in (0, 5, 10)}) == 3
