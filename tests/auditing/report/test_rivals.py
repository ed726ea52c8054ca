"""Models that answer no labels, right or wrong in a known way: what is said of them, with its numbers."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from torch import Generator, nn

from margin.auditing.asking.answers import ask
from margin.auditing.report.screen import plain
from margin.auditing.report.sentences import sentences
from margin.classic.factors import pca as ours
from margin.core.catalog import claims
from margin.core.findings import Subject
from margin.core.tasks import CODES, DENSITY, QUANTILES, SERIES, TOKENS
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.data.formats.series.windows import Windows
from margin.engine.loop import risk
from margin.engine.objectives import negative_log_density, reconstruction_error
from margin.generative.autoencoder.baselines import IS_PCA, NO_BOTTLENECK, Parabola, baselines, demo
from margin.generative.autoencoder.model import Autoencoder, restoration_error
from margin.theory.prediction.held_out import Terms, mean_limits

N = r"(?P<n>-?[\d.]+)"
CONTEXT, HORIZON, SEASON = 24, 3, 12


class Forecast(nn.Module):
    """The mean of the last seasons at each step, and a shift; of quantiles with a band of its own width."""

    def __init__(self, shift=0.0, lag=SEASON, band=None):
        super().__init__()
        self.shift, self.lag, self.band = nn.Parameter(torch.tensor(shift)), lag, band

    def forward(self, x):
        seasons = torch.stack([x[:, len(x[0]) - k : len(x[0]) - k + HORIZON] for k in (self.lag, 2 * SEASON)])
        middle = (seasons.mean(0) if self.lag == SEASON else seasons[0]) + self.shift
        if self.band is None:
            return middle
        return torch.stack([middle - self.band, middle, middle + self.band], -1)


def series(part):
    """A season of 12 rows and noise N(0, 1): the mean of two seasons errs by 1.5, one season by 2."""
    rng = np.random.default_rng(0)
    rows = np.arange(1200)
    values = 5 * np.sin(2 * np.pi * rows / SEASON) + rng.normal(size=1200)
    origins = torch.arange(*((CONTEXT, 600) if part == "train" else (624, 1198)))
    known = Windows(
        torch.tensor(values)[:, None], origins, CONTEXT, HORIZON, (0,), names=("load",), season=SEASON
    )
    return InOrder(known, 64, dtype=torch.float64)


def forecaster(*given, **options):
    task = QUANTILES if "band" in options else SERIES
    return Subject(
        model=Forecast(*given, **options),
        test=series("test"),
        train=series("train"),
        task=task,
        objective=risk(task),
    )


def rows(count, seed, bend=1.0):
    """Rows (t, 2 t^2, noise) with a little noise each."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, count)
    return np.stack((t, 2 * bend * t**2, 0 * t), 1) + 0.05 * rng.normal(size=(count, 3))


class Bent(nn.Module):
    def forward(self, z):
        return torch.cat((Parabola()(z), torch.zeros_like(z)), 1)


def coder(decoder, wrong=1.0):
    encoder = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        encoder.weight.copy_(wrong * torch.tensor([[1.0, 0.0, 0.0]]))
    test, train = ([Batch((torch.tensor(rows(n, seed)),))] for n, seed in ((300, 1), (500, 2)))
    model = Autoencoder(encoder, decoder)
    return Subject(model=model, test=test, train=train, task=CODES, objective=restoration_error)


class Away(nn.Module):
    def forward(self, z):
        return torch.cat((z, z, z), 1) + 10


class Flat(nn.Module):
    def forward(self, z):
        return torch.cat((0.5 * z, 0 * z + 0.7, 0 * z), 1)


class Mixture(nn.Module):
    """Two round Gaussians at -d and d, of the data or of others, that can be drawn from."""

    def __init__(self, distance, train=None):
        super().__init__()
        self.d, self.train_rows = nn.Parameter(torch.tensor(float(distance)).double()), train

    def log_prob(self, x):
        logs = [torch.distributions.Normal(m, 0.5).log_prob(x).sum(1) for m in (-self.d, self.d)]
        return torch.logaddexp(*logs) - np.log(2)

    def sample(self, count, *, generator):
        if self.train_rows is not None:
            return self.train_rows[torch.randint(len(self.train_rows), (count,), generator=generator)]
        side = 2.0 * torch.randint(2, (count, 1), generator=generator).double() - 1
        return side * self.d + 0.5 * torch.randn(count, 2, generator=generator, dtype=torch.float64)


def points(count, seed):
    return Mixture(2).sample(count, generator=Generator().manual_seed(seed)).detach()


def generator(distance, copies=False):
    test, train = points(300, 1), points(200, 2)
    return Subject(
        model=Mixture(distance, train if copies else None),
        test=[Batch((test,))],
        train=[Batch((train,))],
        task=DENSITY,
        objective=negative_log_density,
    )


BUILT = {
    "forecast": lambda: forecaster(),
    "forecast, a season ago": lambda: forecaster(lag=2 * SEASON),
    "forecast, shifted": lambda: forecaster(5.0),
    "band": lambda: forecaster(band=1.28 * 1.5**0.5),
    "band, narrow": lambda: forecaster(band=0.3),
    "bent code": lambda: coder(Bent()),
    "flat code": lambda: coder(Flat()),
    "code, away": lambda: coder(Away()),
    "density": lambda: generator(2),
    "density, wrong": lambda: generator(0.2),
    "copies": lambda: generator(2, copies=True),
}  # fmt: skip


def errors_of(subject):
    with torch.no_grad():
        out = torch.cat([subject.model(b.inputs[0]) for b in subject.test])
    out = out[..., 1] if out.ndim == 4 else out
    truth = torch.cat([b.targets for b in subject.test])
    past = torch.cat([b.inputs[0] for b in subject.test])
    naive = {1: past[:, -1:].expand_as(truth), SEASON: past[:, SEASON : SEASON + HORIZON]}
    return (out - truth).numpy(), {lag: (x - truth).numpy() for lag, x in naive.items()}


def saved(kind):
    off, naive = errors_of(BUILT[kind]())
    return min(1 - (off**2).mean() / (x**2).mean() for x in naive.values())


def absolute(kind):
    return np.abs(errors_of(BUILT[kind]())[0]).mean()


def covered(kind):
    subject = BUILT[kind]()
    return (np.abs(errors_of(subject)[0]) <= subject.model.band).mean()


def by_pca(kind):
    subject = BUILT[kind]()
    x, train = (part[0].inputs[0].numpy() for part in (subject.test, subject.train))
    pca = PCA(1).fit(train)
    with torch.no_grad():
        off = x - subject.model.reconstruct(torch.tensor(x)).numpy()
    return 1 - (off**2).sum() / ((x - pca.inverse_transform(pca.transform(x))) ** 2).sum()


def nats(kind):
    subject = BUILT[kind]()
    x, train = (part[0].inputs[0] for part in (subject.test, subject.train))
    gaussian = GaussianMixture(1, reg_covar=0).fit(train.numpy()).score(x.numpy())
    with torch.no_grad():
        return float(subject.model.log_prob(x).mean()) - gaussian


# A row: question, level, the words with a place N for the number, and what the number is.
SAID = {
    "forecast": [
        ("right", "good", rf"^Better than repeating the values of 12 rows ago \(.*: {N} ", saved),
        ("right", "good", rf"mean absolute error {N} .* for 'load'", absolute),
        ("rests", "good", r"and not found: .*a shift from the training part", None),
    ],
    "forecast, a season ago": [
        ("right", "unknown", rf"^Not told apart from .* 12 rows ago \(.*: {N} .* More held-out", saved)
    ],
    "forecast, shifted": [("right", "bad", rf"^Worse than repeating the values of 12 .*: {N} ", saved)],
    "band": [("probabilities", "good", rf"outer quantiles in {N} .*; 0?\.8 is promised", covered)],
    "band, narrow": [("probabilities", "warn", rf"outer quantiles in {N} .* too narrow", covered)],
    "bent code": [("right", "good", rf"^Better than PCA of 1 component, .*: {N} ", by_pca)],
    "flat code": [("right", "bad", rf"^Worse than PCA of 1 component, .*: {N} .* Use PCA", by_pca)],
    "code, away": [("right", "bad", r"^Worse than a constant, .* Check the loss", None)],
    "density": [
        ("right", "good", rf"^Better than a Gaussian .* given {N} ", nats),
        ("right", "unknown", r"^No classifier was found", None),
        ("memorized", "good", r"with probability \.[45]", None),
    ],
    "density, wrong": [
        ("right", "bad", rf"^Worse than a Gaussian .* given {N} .* Use that", nats),
        ("right", "bad|warn", r"^Its samples are told from held-out examples", None),
    ],
    "copies": [("memorized", "bad", r"with probability 0\.?\d* .* It copies training rows", None)],
}  # fmt: skip

NEVER = {
    **{kind: [("right", "bad|warn")] for kind in ("forecast", "band", "bent code", "density")},
    **{kind: [("right", "good")] for kind in ("forecast, shifted", "flat code", "code, away")},
    "density, wrong": [("right", "good")],
    "copies": [("memorized", "good")],
}

ASKED = ("sequence/forecast", "generative/codes", "generative/density.gain", "generative/samples.two",
         "generative/samples.mem", "theory/risk", "theory/evidence")  # fmt: skip


@pytest.fixture(scope="module")
def audits():
    known = {}

    def of(kind):
        if kind not in known:
            asked = [claim for name, claim in claims().items() if name.startswith(ASKED)]
            known[kind] = ask(BUILT[kind](), asked, title=kind, everything=False)
        return known[kind]

    return of


def shows(text, number):
    digits = len(text.partition(".")[2])
    return float(text) == pytest.approx(number, abs=0.51 * 10.0**-digits)


@pytest.mark.parametrize("kind", SAID)
def test_what_it_is_worth_beside_the_simplest_is_said_with_its_number(audits, kind):
    for question, levels, words, number in SAID[kind]:
        meant = [
            s for s in sentences(audits(kind)) if s.question == question and s.level in levels.split("|")
        ]
        matches = [match for s in meant if (match := re.search(words, f"{s.text} {s.todo}"))]
        assert matches, (words, sentences(audits(kind)))
        if number is not None:
            assert shows(matches[0]["n"], number(kind)), (matches[0][0], number(kind))


@pytest.mark.parametrize("kind", NEVER)
def test_nothing_that_is_not_so_is_said(audits, kind):
    for question, levels in NEVER[kind]:
        said = sentences(audits(kind))
        assert [s for s in said if s.question == question and s.level in levels.split("|")] == []


@pytest.mark.parametrize("kind", BUILT)
def test_the_first_screen_says_whether_it_is_right_and_nothing_broke(audits, kind):
    assert not audits(kind).failed and [a.broken for a in audits(kind).answers if a.broken] == []
    right = [s.text for s in sentences(audits(kind)) if s.question == "right"]
    assert right[0][:30] in plain(audits(kind), 120)


def test_baselines_are_those_of_scikit_learn_where_features_outnumber_rows():
    """Weights count, and PCA is of the training rows: a mutant that fits it on held-out rows is seen."""
    rng = np.random.default_rng(0)
    train, x = rng.normal(size=(20, 40)) @ np.diag(np.linspace(3, 0.1, 40)), rng.normal(size=(30, 40))
    weight = rng.integers(0, 3, 30).astype(float)
    torch.manual_seed(0)
    model = Autoencoder(nn.Linear(40, 3), nn.Linear(3, 40)).double()
    subject = replace(
        demo(),
        model=model,
        test=[Batch((torch.tensor(x),), weight=torch.tensor(weight))],
        train=[Batch((torch.tensor(train),))],
    )
    found = baselines(subject)
    pca = PCA(3, svd_solver="full").fit(train)
    with torch.no_grad():
        off = weight @ ((x - model.reconstruct(torch.tensor(x)).numpy()) ** 2).sum(1)
    rivals = (pca.inverse_transform(pca.transform(x)), train.mean(0))
    expected = [1 - off / (weight @ ((x - rival) ** 2).sum(1)) for rival in rivals]
    assert found.labels == ("PCA of 3 components", "a constant")
    assert found.value.tolist() == pytest.approx(expected)
    # each row left out in turn, by brute force
    e = weight * ((x - model.reconstruct(torch.tensor(x)).detach().numpy()) ** 2).sum(1)
    b = weight * ((x - train.mean(0)) ** 2).sum(1)
    e, b = e[weight > 0], b[weight > 0]
    n, ratio = len(e), e.sum() / b.sum()
    left = np.array([np.log(np.delete(e, i).sum() / np.delete(b, i).sum()) for i in range(n)])
    pseudo = -(n - 1) * torch.tensor(left - left.mean())
    ends = mean_limits(Terms(pseudo, torch.ones(n).double(), torch.arange(n)))
    low, high = (end[1].item() for end in found.shown)
    assert (1 - high, 1 - low) == pytest.approx(tuple(ratio * np.exp(ends)))


def test_a_code_as_wide_as_its_inputs_stands_beside_a_constant_alone():
    test = [Batch((torch.tensor(rows(50, 1)),))]
    whole = Autoencoder(nn.Identity(), nn.Identity())
    found = baselines(replace(demo(), model=whole, test=test, train=test))
    assert found.labels == ("a constant",) and found.value.tolist() == [1.0]
    assert found.remarks == (NO_BOTTLENECK,)


@pytest.mark.parametrize(("components", "rival"), [(1, 0), (2, 1), (3, 0)])
def test_pca_itself_stands_beside_half_as_many_components(components, rival):
    """Scikit-learn's errors; of one component a constant alone is simpler, all three restore everything.

    Mutants: PCA is compared with itself; a learned projection close by is taken for it.
    """
    train, test = rows(400, 1), rows(200, 2)
    model = ours.PCA(3, components=components).double()
    mean, axes, _ = ours.principal_axes(torch.tensor(train), components)
    with torch.no_grad():
        model.mean.copy_(mean)
        model.axes.copy_(axes)
    parts = {name: [Batch((torch.tensor(x),))] for name, x in (("train", train), ("test", test))}
    subject = Subject(model=model, task=CODES, objective=reconstruction_error, **parts)
    found = baselines(subject)

    def error(m):
        if m == 0:
            return ((test - train.mean(0)) ** 2).sum()
        peer = PCA(m).fit(train)
        return ((test - peer.inverse_transform(peer.transform(test))) ** 2).sum()

    expected = [1 - error(components) / error(m) for m in ([rival] if rival else []) + [0]]
    assert found.value.tolist() == pytest.approx(expected, abs=1e-9)
    assert found.labels == (("PCA of 1 component", "a constant") if rival else ("a constant",))
    assert found.remarks == ((NO_BOTTLENECK,) if components == 3 else (IS_PCA,))
    text = str(ask(subject, [claims()["generative/codes.baselines"]]))
    words = {
        1: "principal component analysis itself",
        2: "Better than PCA of 1 component",
        3: "a copy would do",
    }
    assert words[components] in " ".join(text.split())
    with torch.no_grad():
        model.axes += 0.01
    assert IS_PCA not in baselines(subject).remarks


class Bigram(nn.Module):
    """The next of 4 tokens is the one after this, with probability ``sure``, else one of the other three."""

    def __init__(self, sure: float) -> None:
        super().__init__()
        p = torch.full((4, 4), (1 - sure) / 3, dtype=torch.float64)
        p[torch.arange(4), (torch.arange(4) + 1) % 4] = sure
        self.log_p = nn.Parameter(p.log())

    def forward(self, tokens):
        return self.log_p[tokens]


@pytest.mark.parametrize(
    ("sure", "level", "perplexity"),
    [
        (0.7, "good", 2.56),  # exp of the entropy, -.7 log .7 - .3 log .1
        (0.25, "unknown", 4.0),  # the even guess, which the frequencies are
        (0.05, "bad", 11.5),  # exp(-.7 log .05 - .3 log .317)
    ],
)
def test_a_language_model_stands_beside_the_frequencies_of_its_tokens(sure, level, perplexity):
    g = Generator().manual_seed(0)
    tokens = torch.randint(4, (400, 1), generator=g).repeat(1, 17)
    for t in range(1, 17):
        other = (tokens[:, t - 1] + 2 + torch.randint(3, (400,), generator=g)) % 4
        right = torch.rand(400, generator=g) < 0.7
        tokens[:, t] = torch.where(right, (tokens[:, t - 1] + 1) % 4, other)
    train, test = (Batch((x[:, :-1],), x[:, 1:]) for x in tokens.chunk(2))
    subject = Subject(
        model=Bigram(sure), test=[test], train=[train], task=TOKENS, objective=risk(TOKENS),
        vocabulary=("a", "b", "c", "d"),
    )  # fmt: skip
    asked = [claims()["text/language.perplexity"], claims()["theory/risk.loss"]]
    (first,) = [s for s in sentences(ask(subject, asked)) if s.question == "right"]
    assert first.level == level
    numbers = rf"Perplexity {N}.* per token, .* bits per byte; .* alone give (?P<m>[\d.]+)\.$"
    found = re.search(numbers, first.text)
    assert float(found["n"]) == pytest.approx(perplexity, rel=0.05)
    assert float(found["m"]) == pytest.approx(4.0, rel=0.02)
