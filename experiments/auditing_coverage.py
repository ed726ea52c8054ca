"""How often the 95 % interval that a default claim prints holds the truth, at 10, 30 and 300 examples.

Each claim is asked of samples of a population whose truth is known: of three classes in shares of .5, .3 and
.2 with normal scores, of two classes with probabilities that are too sure, of real values with normal errors,
of losses with a long tail, and of three classes at each of many places of an example, whose terms are alike;
of linear models, whose gradients, signals, robust accuracies and curvatures are known; of matrices, where
what is drawn are probes and starts; of dropout masks that can be counted; and of densities, codes and
forecasts of a known law. The truth is a formula, or the value of many draws. Samples that lack a
class, or give no interval, are not counted. Of tests it is how often they see what is not there. Rows are
written as they come; with words, only the cases that hold one are tried anew, for each has its own seed:

    python -m experiments.auditing_coverage [WORD ...]
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import torch
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize_scalar
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from benchmarks.record import RESULTS, record
from margin.auditing.report.table import elements
from margin.auditing.subject.outputs import PLACE_CLASSES
from margin.core.catalog import claims
from margin.core.findings import Finding, NotAsked, Subject, finding_of
from margin.core.tasks import CLASSES, DENSITY, MULTILABEL, SERIES, VALUES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.engine.objectives import negative_log_density
from margin.generative.autoencoder.baselines import Parabola
from margin.generative.autoencoder.baselines import demo as code_demo
from margin.generative.flow.claims import MANY as MANY_GAINS
from margin.robust.sandwich import l2_attack, linf_fgsm, linf_sandwich
from margin.theory.curvature.hessian import MEMORY
from margin.theory.curvature.trained_weights import Quadratic, of_weights, trace_of
from margin.theory.evidence.shift import shifted
from margin.theory.evidence.targets import rules
from margin.theory.prediction.calibration import expected_calibration_error, forecasts
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.risk import clopper_pearson
from margin.theory.signal.propagation import signal

SEED = 2020
REPEATS = 1000
SIZES = (10, 30, 300)
MANY = 2_000_000

Draw = Callable[[int, Generator], Subject]

Held = dict[str, bool]
"""Whether the interval of each element held its truth; {} where there was none."""

Try = Callable[[int, Generator], Held]


class Case(NamedTuple):
    """What is tried, how often, of how many examples (or draws), and how it is called.

    Of fewer than ``told`` examples the finding itself says, beside its number, that its interval may be too
    narrow.
    """

    what: str
    once: Try
    sizes: tuple[int, ...] = SIZES
    repeats: int = REPEATS
    of: str = "n"
    told: int = 0


def normal_scores(n: int, generator: Generator) -> Subject:
    """Scores N(2 e_y, 1): about .85 are right; the probabilities that they state are calibrated nearly."""
    labels = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), n, replacement=True, generator=generator)
    scores = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return stated(scores + 2 * torch.nn.functional.one_hot(labels, 3), labels)


def too_sure(n: int, generator: Generator) -> Subject:
    """Probabilities p uniform on [.05, .95] of an event of probability .5 + .7 (p - .5)."""
    p = 0.05 + 0.9 * torch.rand(n, generator=generator, dtype=torch.float64)
    happened = torch.rand(n, generator=generator, dtype=torch.float64) < 0.5 + 0.7 * (p - 0.5)
    return stated(torch.stack(((1 - p).log(), p.log()), 1), happened.long())


def normal_errors(n: int, generator: Generator) -> Subject:
    """Predictions N(0, 1), targets off by N(0, 1/4): mean absolute error .3989, root .5, R^2 .8."""
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    return stated(x, x + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64), task=VALUES)


def long_tails(n: int, generator: Generator) -> Subject:
    """Errors whose squares are lognormal of spread 1: the mean loss is exp(1/2)."""
    off = (0.5 * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
    return stated(off, torch.zeros(n, dtype=torch.float64), task=VALUES)


TERMS = 40


def alike_terms(n: int, generator: Generator) -> Subject:
    """Examples of 20 to 40 terms, with class shares and a strength of the scores of their own.

    Scores are N(2 s e_y, 1) with s lognormal of spread 1/2; an eighth of the variance of being right, about,
    lies between examples, so that 300 examples of 30 terms are worth some 1,900 independent ones.
    """
    leaning = torch.tensor([0.5, 0.3, 0.2]).log() + torch.randn(n, 3, generator=generator)
    labels = torch.multinomial(leaning.softmax(-1), TERMS, replacement=True, generator=generator)
    strength = 2 * (0.5 * torch.randn(n, 1, 1, generator=generator, dtype=torch.float64)).exp()
    scores = torch.randn(n, TERMS, 3, generator=generator, dtype=torch.float64)
    scores = scores + strength * torch.nn.functional.one_hot(labels, 3)
    length = torch.randint(TERMS // 2, TERMS + 1, (n, 1), generator=generator)
    return stated(scores, labels, (torch.arange(TERMS) < length).double(), task=PLACE_CLASSES)


OF_TERMS = (
    "risk.accuracy",
    "risk.loss",
    "confusion.balanced_accuracy",
    "confusion.macro_f1",
    "confusion.recall",
    "confusion.precision",
    "ranking.auroc",
    "margins.distribution",
    "calibration.ece",
    "calibration.brier",
    "calibration.nll",
)

ASKED: tuple[tuple[str, Draw, dict[str, float] | None], ...] = (
    ("risk.accuracy", normal_scores, None),
    ("confusion.balanced_accuracy", normal_scores, None),
    ("confusion.macro_f1", normal_scores, None),
    ("confusion.recall", normal_scores, None),
    ("confusion.precision", normal_scores, None),
    ("ranking.auroc", too_sure, None),
    ("ranking.auroc_by_class", normal_scores, None),
    ("margins.distribution", normal_scores, None),
    ("calibration.ece", normal_scores, None),
    ("calibration.binary_ece", too_sure, None),
    ("calibration.brier", normal_scores, None),
    ("calibration.nll", normal_scores, None),
    ("residuals.mae", normal_errors, {"": 0.5 * math.sqrt(2 / math.pi)}),
    ("residuals.rmse", normal_errors, {"": 0.5}),
    ("residuals.r2", normal_errors, {"": 0.8}),
    ("risk.loss", normal_errors, {"": 0.25}),
    ("risk.loss", long_tails, {"": math.exp(0.5)}),
    *((name, alike_terms, None) for name in OF_TERMS),
)


def labeled(found: Finding, values: Tensor) -> dict[str, float]:
    """The elements that are numbers, by their label."""
    pairs = zip(found.labels or ("",), values.flatten().tolist(), strict=True)
    return {label: x for label, x in pairs if math.isfinite(x)}


@cache
def truth_of(name: str, draw: Draw) -> dict[str, float]:
    """The value on two million draws."""
    n = MANY // TERMS if draw is alike_terms else MANY
    subject = draw(n, Generator().manual_seed(SEED + 1))
    if name.startswith("calibration.") and name.endswith("ece"):  # without the resamples of its interval
        events = forecasts(subject)
        readings = {"top-label confidence": events.top_label}
        if name == "calibration.binary_ece":
            readings["frequency of positives"] = events.positive
        weight = events.weight
        return {
            label: float(expected_calibration_error(*pair, weight=weight)) for label, pair in readings.items()
        }
    found = finding_of(claims()[f"theory/{name}"], subject)
    return labeled(found, found.value)


def of_claim(name: str, draw: Draw, known: dict[str, float] | None, n: int, generator: Generator) -> Held:
    """Whether the intervals of a claim hold the truth on one sample."""
    truth = known or truth_of(name, draw)
    classes = 0 if draw in (normal_errors, long_tails) else (2 if draw is too_sure else 3)
    subject = draw(n, generator)
    targets = subject.test[0].targets
    if classes and targets is not None and len(targets.unique()) < classes:
        return {}
    try:
        found = finding_of(claims()[f"theory/{name}"], subject)
    except NotAsked:  # the interval would be all of the range
        return {}
    return held(found, truth)


def held(found: Finding, truth: dict[str, float]) -> Held:
    """Whether what is printed of each element, its interval or bracket, holds its truth."""
    known = {} if found.failure else {part.label: part for part in elements(found)}
    return {
        label: known[label].below <= true <= known[label].above
        for label, true in truth.items()
        if label in known and math.isfinite(known[label].value)
    }


def gap(draw: Draw, mean: float, n: int, generator: Generator) -> Held:
    """The generalization gap of a sample of 100 that was trained on: the mean loss less that sample's."""
    train = draw(100, generator)
    subject = replace(draw(n, generator), train=train.test)
    (terms,) = (train.objective(train.model, batch, generator).double() for batch in train.test)
    return held(finding_of(claims()["theory/risk.gap"], subject), {"": mean - float(terms.mean())})


def memorized(n: int, generator: Generator) -> Held:
    """The gap of two accuracies that are one: of samples of 100 and of n examples."""
    subject = replace(normal_scores(n, generator), train=normal_scores(100, generator).test)
    return held(finding_of(claims()["theory/memorization.accuracy"], subject), {"gap": 0.0})


def one_weight(y: Tensor) -> Subject:
    """The loss (w - y)^2 at w = 0, whose gradient is -2 y."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    batch = Batch((torch.ones_like(y)[:, None],), y[:, None])
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


def noise(what: str, law: Callable[[Tensor], Tensor], truth: float, n: int, generator: Generator) -> Held:
    """The gradient's variance or noise scale, of targets that are a function of normal numbers."""
    subject = one_weight(law(torch.randn(n, generator=generator, dtype=torch.float64)))
    found = finding_of(claims()[f"theory/gradient_noise.{what}"], subject)
    return {"a lower bound" if found.kind == "lower" else "": all(held(found, {"": truth}).values())}


def layers(x: Tensor) -> Subject:
    """A linear, a bent and a linear layer of fixed weights, on targets 0."""
    with torch.random.fork_rng([]):
        torch.manual_seed(SEED)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    batch = Batch((x,), x.new_zeros(len(x), 1))
    return Subject(model=model, test=[batch], task=VALUES, objective=risk(VALUES))


@cache
def sizes_of_signals(what: str) -> dict[str, float]:
    """Root mean squares of outputs, and of gradients in them, over a million normal inputs."""
    x = torch.randn(1_000_000, 3, generator=Generator().manual_seed(SEED + 1), dtype=torch.float64)
    subject = layers(x)
    found = signal(subject.model, subject.test, subject.objective)
    return dict(zip(found.levels, found.sizes(what)[0].tolist(), strict=True))


def signals(what: str, n: int, generator: Generator) -> Held:
    """The size of each layer's output, or gradient, of normal inputs."""
    subject = layers(torch.randn(n, 3, generator=generator, dtype=torch.float64))
    found = finding_of(claims()[f"theory/signal.{what}s"], subject)
    return held(found, sizes_of_signals("activation" if what == "activation" else "gradient"))


@cache
def temperature_of_too_sure() -> float:
    """The temperature of least expected log loss, by quadrature over the stated probability."""
    p, weights = (torch.from_numpy(x) for x in leggauss(200))
    p, weights = 0.5 + 0.45 * p, weights / 2
    happens, logit = 0.5 + 0.7 * (p - 0.5), (p / (1 - p)).log()

    def loss(temperature: float) -> float:
        stated = logit / temperature
        return -float((happens * logsigmoid(stated) + (1 - happens) * logsigmoid(-stated)) @ weights)

    return float(minimize_scalar(loss, bounds=(0.2, 5.0), method="bounded", options={"xatol": 1e-9}).x)


def tempered(n: int, generator: Generator) -> Held:
    """The temperature that repairs probabilities that are too sure."""
    try:
        found = finding_of(claims()["theory/calibration.temperature"], too_sure(n, generator))
    except NotAsked:
        return {}
    return held(found, {found.labels[0]: temperature_of_too_sure()})


CHANCES = (0.9, 0.8, 0.6)


def several(name: str, n: int, generator: Generator) -> Held:
    """How often each of three labels is told rightly, and all of them are."""
    right = torch.rand(n, 3, generator=generator) < torch.tensor(CHANCES)
    subject = stated(2.0 * right.double() - 1, torch.ones(n, 3), task=MULTILABEL)
    found = finding_of(claims()[f"theory/multilabel.{name}"], subject)
    known = {f"label {k}": chance for k, chance in enumerate(CHANCES)}
    return held(found, known if name == "by_label" else {"": math.prod(CHANCES)})


def nothing_to_gain(law: Callable[[Tensor], Tensor], n: int, generator: Generator) -> Held:
    """Whether no gain is told of a step from weights that are the best already."""
    subject = one_weight(law(torch.randn(n, generator=generator, dtype=torch.float64)))
    found = finding_of(claims()["theory/finished.gradient"], subject)
    return {"": elements(found)[0].below <= 0}


SHARES = (0.0, 0.02, 0.05)
SIDE = 4.0


def plane(n: int, generator: Generator) -> Subject:
    """A linear classifier of the plane, f = 2 x_1 - x_2, of labels that are the sign of f + N(0, 1)."""
    x = 6 * torch.rand(n, 2, generator=generator) - 3
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, -1.0]]))
    labels = (x @ model.weight[1].detach() + torch.randn(n, generator=generator) > 0).long()
    domain = Domain(torch.full((2,), -SIDE), torch.full((2,), SIDE))
    batch = Batch((x,), labels)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), domain=domain)


@cache
def robust_truth(norm: str) -> tuple[float, ...]:
    """The share whose margin exceeds what a move of each length takes: 3 eps, or sqrt(5) eps."""
    (batch,) = plane(MANY, Generator().manual_seed(SEED + 1)).test
    x, y = batch.inputs[0].double(), batch.targets
    margin = (2 * y.double() - 1) * (2 * x[:, 0] - x[:, 1])
    size, factor = (2 * SIDE, 3.0) if norm == "linf" else (2 * SIDE * math.sqrt(2), math.sqrt(5))
    return tuple(float((margin > factor * share * size).double().mean()) for share in SHARES)


def robust(ask: Callable[..., Finding], norm: str, n: int, generator: Generator) -> Held:
    """The accuracy in each ball: the interval, or the bracket from certificate to attack."""
    found = ask(plane(n, generator), shares=SHARES)
    return held(found, dict(zip(found.labels, robust_truth(norm), strict=True)))


class Known(NamedTuple):
    """A symmetric matrix as the map that estimates of its trace ask."""

    matrix: Tensor

    @property
    def dim(self) -> int:
        return len(self.matrix)

    dtype = torch.float64
    device = torch.device("cpu")

    def __call__(self, v: Tensor) -> Tensor:
        return self.matrix @ v


@cache
def power_law(exponent: float, dim: int = 400) -> Tensor:
    """A matrix of eigenvalues 1, 2^-a, 3^-a, ..., each third of them negative, on random axes."""
    Q = torch.linalg.qr(torch.randn(dim, dim, generator=Generator().manual_seed(SEED), dtype=torch.float64)).Q
    k = torch.arange(1.0, dim + 1, dtype=torch.float64)
    return Q @ torch.diag(k**-exponent * torch.where(k % 3 == 0, -1.0, 1.0)) @ Q.T


def probed(exponent: float, rank: int, probes: int, generator: Generator) -> Held:
    """A trace by random signs, with so many directions deflated."""
    A = power_law(exponent)
    seed = int(torch.randint(2**31, (), generator=generator))
    memory = MEMORY if rank else 0
    found = trace_of(Known(A), rank, probes, memory, seed=seed)
    return {"": bool(found.low <= A.trace() <= found.high)}


def in_groups(law: Callable[[Tensor], Tensor], n: int, generator: Generator) -> Held:
    """The trace of the Hessian 2 x x' of a linear regression of n > 2,048 examples, from 8 groups."""
    x = law(torch.randn(n, 3, generator=generator, dtype=torch.float64))
    batch = Batch((x,), x.sum(1, keepdim=True))
    model = nn.Linear(3, 1, bias=False).double()
    subject = Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
    found = finding_of(claims()["theory/curvature.trace"], subject)
    return held(found, {"": 2 * float(x.square().sum(1).mean())})


def ends(name: str, dim: int, generator: Generator) -> Held:
    """Eigenvalues of a random matrix with three that stand out."""
    G = torch.randn(dim, dim, generator=generator, dtype=torch.float64) / math.sqrt(2 * dim)
    spikes = torch.randn(dim, 3, generator=generator, dtype=torch.float64) / math.sqrt(dim)
    A = G + G.T + spikes @ torch.diag(torch.tensor([8.0, 5.0, -4.0], dtype=torch.float64)) @ spikes.T
    found = finding_of(claims()[f"theory/curvature.{name}"], of_weights(Quadratic(A)))
    values = torch.linalg.eigvalsh(A)
    known = values[[-1, 0]] if name == "sharpness" else values[values.abs().argsort(descending=True)[:5]]
    return held(found, dict(zip(found.labels, known.tolist(), strict=True)))


def coins(n: int, generator: Generator) -> Subject:
    """Normal inputs and labels by coins, n held out and n trained on."""
    parts = [
        Batch((torch.randn(n, 3, generator=generator),), torch.randint(2, (n,), generator=generator))
        for _ in range(2)
    ]
    model = nn.Linear(3, 2)
    return Subject(model=model, test=parts[:1], train=parts[1:], task=CLASSES, objective=risk(CLASSES))


class Masks(nn.Dropout):
    """Dropout of masks that each try draws anew: those of an audit are the same for a model of one shape."""

    def __init__(self, generator: Generator) -> None:
        super().__init__(0.5)
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """Half of the units, twice as large."""
        if not self.training:
            return x
        return 2 * x * (torch.rand(x.shape, generator=self.generator) < 0.5)


def dropped(x: Tensor, generator: Generator) -> nn.Sequential:
    """Eight tanh units, half of which are dropped, and a linear map to three scores; weights N(0, 1)."""
    model = nn.Sequential(nn.Linear(x.shape[1], 8), nn.Tanh(), Masks(generator), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model.eval()


def masked(name: str, n: int, generator: Generator) -> Held:
    """What dropping units changes of scores, and of confidence, over 256 masks, of 256 examples at most."""
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    model = dropped(x, generator)
    test = [Batch((x,), torch.zeros(n, dtype=torch.int64))]
    subject = Subject(model=model, test=test, task=CLASSES, objective=risk(CLASSES))
    found = finding_of(claims()[f"theory/dropout.{name}"], subject)
    with torch.no_grad():
        whole = model(x).softmax(1)
        masks = torch.cartesian_prod(*[torch.tensor([0.0, 2.0], dtype=torch.float64)] * 8)
        each = model[3](masks[:, None] * model[:2](x)).softmax(2).mean(0)
    gain = (whole - each).gather(1, whole.argmax(1, keepdim=True)).mean()
    return held(found, {"": float(gain) if name == "ensemble" else 0.0})


class Drawn(nn.Module):
    """The density of a lognormal or of a two-sided Gaussian mixture, a number an example, and given draws."""

    def __init__(self, law: str, samples: Tensor | None = None) -> None:
        super().__init__()
        self.law, self.samples = law, samples

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Independent draws."""
        z = torch.randn(count, 1, generator=generator, dtype=torch.float64)
        if self.law == "lognormal":
            return (z / 2).exp()
        return z + 4.0 * torch.randint(2, (count, 1), generator=generator) - 2

    def log_prob(self, x: Tensor) -> Tensor:
        """The logarithm of the density."""
        normal = torch.distributions.Normal(0.0, 1.0)
        if self.law == "lognormal":
            return (normal.log_prob(2 * x.log()) + math.log(2) - x.log())[:, 0]
        return (torch.logaddexp(normal.log_prob(x - 2), normal.log_prob(x + 2)) - math.log(2))[:, 0]

    def sample(self, count: int, *, generator: Generator) -> Tensor:
        """The next of the draws that it was given."""
        if self.samples is None:
            return self.draw(count, generator)
        taken, self.samples = self.samples[:count], self.samples[count:]
        return taken


@cache
def moments(law: str) -> tuple[float, float, float]:
    """Mean log-density, mean and variance of two million draws."""
    x = Drawn(law).draw(MANY, Generator().manual_seed(SEED + 1))
    return float(Drawn(law).log_prob(x).mean()), float(x.mean()), float(x.var())


def gained(law: str, n: int, generator: Generator) -> Held:
    """The nats that the data's own density gains over the Gaussian of 100 training draws."""
    model = Drawn(law)
    test, train = model.draw(n, generator), model.draw(100, generator)
    parts = [[Batch((x,))] for x in (test, train)]
    subject = Subject(
        model=model, test=parts[0], train=parts[1], task=DENSITY, objective=negative_log_density
    )
    own, mean, variance = moments(law)
    m, v = float(train.mean()), float(train.var(correction=0))
    gaussian = -0.5 * (math.log(2 * math.pi * v) + (variance + (mean - m) ** 2) / v)
    return held(finding_of(claims()["generative/density.gain"], subject), {"": own - gaussian})


def copying(n: int, generator: Generator) -> Held:
    """The rank of samples of the data's own law among held-out draws: 1/2, whatever the training rows."""
    law = Drawn("mixture")
    test, train, samples = (law.draw(k, generator) for k in (n, 100, n))
    parts = [[Batch((x,))] for x in (test, train)]
    model = Drawn("mixture", samples)
    subject = Subject(
        model=model, test=parts[0], train=parts[1], task=DENSITY, objective=negative_log_density
    )
    return held(finding_of(claims()["generative/samples.memorization"], subject), {"": 0.5})


def near_parabola(n: int, generator: Generator) -> Tensor:
    """Rows (t, 2 t^2) with a noise of .05."""
    t = 2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1
    return Parabola()(t) + 0.05 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


@cache
def of_parabola() -> tuple[float, Tensor, Tensor]:
    """The mean squared error of its code, the mean and the covariance of the rows, over two million."""
    x = near_parabola(MANY, Generator().manual_seed(SEED + 1))
    return float((x - Parabola()(x[:, :1])).square().sum(1).mean()), x.mean(0), x.T.cov()


def restored(n: int, generator: Generator) -> Held:
    """What a code along a parabola saves of the error of one principal component and of a constant."""
    test, train = near_parabola(n, generator), near_parabola(100, generator)
    subject = replace(code_demo(), test=[Batch((test,))], train=[Batch((train,))])
    error, mean, covariance = of_parabola()
    off = mean - train.mean(0)
    spread = covariance + torch.outer(off, off)
    axis = torch.linalg.eigh(train.T.cov()).eigenvectors[:, 1]
    total = float(spread.trace())
    truth = {"PCA of 1 component": 1 - error / (total - float(axis @ spread @ axis))}
    return held(
        finding_of(claims()["generative/codes.baselines"], subject), truth | {"a constant": 1 - error / total}
    )


class Level(nn.Module):
    """The mean of noise, whatever came before."""

    def forward(self, x: Tensor) -> Tensor:
        """0 at both steps ahead."""
        return x.new_zeros(len(x), 2, 1)


def foretold(rho: float, n: int, generator: Generator) -> Held:
    """What the mean saves of the last value's squared error two steps ahead, of noise x' = rho x + e."""
    e = torch.randn(n + 103, generator=generator, dtype=torch.float64)
    x = torch.zeros_like(e)
    for t in range(1, len(e)):
        x[t] = rho * x[t - 1] + e[t]
    rows = x[100:].unfold(0, 4, 1)[:, :, None]
    batch = Batch((rows[:, :2],), rows[:, 2:])
    subject = Subject(model=Level(), test=[batch], task=SERIES, objective=risk(SERIES))
    apart = 2 - rho - rho**2  # E (x' - x)^2 over E x^2 is 2 - 2 rho, two steps ahead 2 - 2 rho^2
    return held(finding_of(claims()["sequence/forecast.skill"], subject), {"last value": 1 - 1 / apart})


def no_shift(n: int, generator: Generator) -> Held:
    """Whether parts of one law are called shifted."""
    found = shifted(coins(n, generator))
    return {} if found is None else {"": found.refutes}


def no_giveaway(n: int, generator: Generator) -> Held:
    """Whether a feature is said to give away labels by coins."""
    return {"": bool(rules(coins(n, generator)).telling)}


SOME, FEW = 400, 200
"""Repeats of what takes long, and longer."""

CASES: tuple[Case, ...] = (
    *(
        Case(f"{name}, {draw.__name__.replace('_', ' ')}", partial(of_claim, name, draw, known))
        for name, draw, known in ASKED
    ),
    Case("risk.gap, normal errors", partial(gap, normal_errors, 0.25), repeats=SOME),
    Case("risk.gap, long tails", partial(gap, long_tails, math.exp(0.5)), repeats=SOME),
    Case("memorization.accuracy, normal scores", memorized, repeats=SOME),
    Case(
        "gradient_noise.variance, normal",
        partial(noise, "variance", lambda z: 1 + 2 * z, 16.0),
        repeats=SOME,
    ),
    Case(
        "gradient_noise.variance, lognormal",
        partial(noise, "variance", lambda z: (z / 2).exp(), 4 * math.exp(0.25) * (math.exp(0.25) - 1)),
        repeats=SOME,
    ),
    *(
        Case(
            f"gradient_noise.scale, {s**2} examples, normal",
            partial(noise, "scale", lambda z, s=s: 1 + s * z, float(s**2)),
            repeats=SOME,
        )
        for s in (2, 4)
    ),
    Case(
        "gradient_noise.scale, .28 examples, lognormal",
        partial(noise, "scale", lambda z: (z / 2).exp(), math.exp(0.25) - 1),
        repeats=SOME,
    ),
    *(
        Case(f"curvature.{'deflated ' if rank else ''}trace by signs, eigenvalues k^-{a:g}",
             partial(probed, a, rank), (8, 48), SOME, "probes")
        for a in (0.5, 1.5)
        for rank in (0, 16)
    ),
    *(
        Case(f"curvature.trace by samples, {law} inputs", partial(in_groups, of), (4096,), FEW, "examples")
        for law, of in (("normal", lambda z: 2 * z), ("lognormal", lambda z: (z / 2).exp()))
    ),
    *(
        Case(f"curvature.{name}, random matrices with spikes", partial(ends, name), (300,), FEW, "order")
        for name in ("sharpness", "leading")
    ),
    Case("calibration.temperature, too sure", tempered, repeats=SOME),
    *(Case(f"multilabel.{name}, three labels", partial(several, name)) for name in ("by_label", "subset")),
    Case("finished.gradient, best weights, normal", partial(nothing_to_gain, lambda z: z), repeats=SOME),
    Case(
        "finished.gradient, best weights, lognormal",
        partial(nothing_to_gain, lambda z: (z / 2).exp() - math.exp(0.125)),
        repeats=SOME,
    ),
    *(Case(f"dropout.{name}, eight units", partial(masked, name), (30, 256), 100)
      for name in ("weight_scaling", "ensemble")),
    *(Case(f"density.gain, {law}", partial(gained, law), (*SIZES[:2], 100, 300), SOME, told=told)
      for law, told in (("mixture", 0), ("lognormal", MANY_GAINS))),
    Case("samples.memorization, samples of the data's law", copying, sizes=(30, 300), repeats=SOME),
    Case("codes.baselines, a parabola", restored, repeats=SOME),
    *(Case(f"forecast.skill, noise of correlation {rho:g}", partial(foretold, rho), (30, 300), SOME)
      for rho in (0.0, 0.5)),
    Case("signal.activations, normal inputs", partial(signals, "activation"), repeats=SOME),
    Case("signal.gradients, normal inputs", partial(signals, "gradient"), repeats=SOME),
    Case("linf.fgsm, linear classifier", partial(robust, linf_fgsm, "linf"), repeats=FEW),
    Case("l2.attack, linear classifier", partial(robust, l2_attack, "l2"), repeats=FEW),
    Case("linf.sandwich, linear classifier", partial(robust, linf_sandwich, "linf"), repeats=FEW),
)  # fmt: skip

ALARMS: tuple[Case, ...] = (
    Case("evidence.shift, parts of one law", no_shift, repeats=FEW),
    Case("evidence.giveaway, labels by coins", no_giveaway, sizes=(40, 300), repeats=FEW),
)
"""Tests: how often they see what is not there, at most .01."""


def counted(case: Case, size: int) -> dict[str, tuple[int, int]]:
    """For each element how many tries were so, and how many there were."""
    generator = Generator().manual_seed(SEED)
    counts: dict[str, tuple[int, int]] = {}
    for _ in range(case.repeats):
        for label, so in case.once(size, generator).items():
            yes, asked = counts.get(label, (0, 0))
            counts[label] = (yes + so, asked + 1)
    return counts


def rows(case: Case, *, alarm: bool = False) -> list[dict[str, object]]:
    """The rows of a case: of 30 examples or more, and of all probes, with what is asked of them."""
    made: list[dict[str, object]] = []
    for size in case.sizes:
        for label, (yes, asked) in counted(case, size).items():
            low, high = clopper_pearson(yes, asked)
            element = f", {label}" if label else ""
            row = {
                "what": f"{case.what}{element}, {case.of} = {size}",
                "unit": "1",
                "value": yes / asked,
                "interval": [low, high],
                "samples": asked,
            }
            if alarm:
                row |= {"target": "<= 0.01", "met": low <= 0.01}
            elif case.of != "n" or size >= 30:
                said = " or said beside the number" if size < case.told else ""
                row |= {"target": f">= 0.93{said}", "met": bool(said) or yes / asked >= 0.93}
            made.append(row)
    return made


def main(words: list[str]) -> None:
    """Simulate, print and write case by case; of the others what was found before stays."""
    before = json.loads((RESULTS / "auditing" / "coverage.json").read_text())["figures"] if words else []
    cases = (*CASES, *ALARMS)
    found = {case: [row for row in before if row["what"].startswith(f"{case.what}, ")] for case in cases}
    for case in cases:
        if words and not any(word in case.what for word in words):
            continue
        found[case] = rows(case, alarm=case in ALARMS)
        record(
            "auditing/coverage",
            title="Coverage of the 95 % intervals that default claims print",
            figures=[row for each in cases for row in found[each]],
            seeds=str(SEED),
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
