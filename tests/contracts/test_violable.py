"""What a default audit calls "holds" can come out otherwise: each claim that promises has a wrong model.

The contract goes over the tables: a default claim whose demonstration promises something stands in the
table with a model that breaks it, or is asked by name, or promises nothing. Of a kind of model the wrong one
is the demonstration's with a bug: a layer of a class that does something else than it says, weights that do
not solve what they are said to solve, a state that is none of its kind.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.classic.linear.networks import LinearNetwork
from margin.classic.linear.regression import LinearRegression
from margin.classic.memory.dense_associative_memory import DenseAssociativeMemory
from margin.classic.memory.hopfield import Hopfield
from margin.core.catalog import Claim, claims, resolve
from margin.core.findings import Subject, Verdict, finding_of
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.generative.autoencoder.distributions import GaussianValues
from margin.generative.autoencoder.model import Autoencoder
from margin.generative.flow.realnvp import CouplingFlow
from margin.generative.gan.model import GAN, Critic, Implicit
from margin.geometric.graphs.gcn import GCNLayer
from margin.geometric.spectral.chebnet import ChebConv
from margin.nn.preprocessed import Preprocessed, core_of
from margin.nn.recurrence import State
from margin.robust.certified_accuracy import l2_certificate, linf_certificate
from margin.sequence.convolution.tcn import TCN
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent.layers import TorchRecurrence
from margin.sequence.seq2seq.model import AttentionSeq2Seq


class Unscaled(nn.Dropout):
    """Dropout that forgets to divide by the share that is kept."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand_like(x) > self.p) if self.training else x


def unscaled() -> Subject:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), Unscaled(0.5), nn.Linear(30, 2))
    x = torch.randn(64, 4)
    return Subject(
        model=model, test=[Batch((x,), torch.arange(64) % 2)], task=CLASSES, objective=risk(CLASSES)
    )


class OffGrid(nn.Module):
    """It answers the other class wherever an input is no multiple of 1/8, and shows no bound how."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[4.0, 0.0], [-4.0, 0.0]]))
            self.linear.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        scores = self.linear(x)
        if type(x) is not Tensor:
            return scores
        return torch.where((8 * x != (8 * x).round()).any(1, keepdim=True), -scores, scores)


class TwoFaced(OffGrid):
    """Bounds see a linear layer; below a multiple of 1/8, where attacks go, it answers the other class."""

    def forward(self, x: Tensor) -> Tensor:
        scores = self.linear(x)
        if type(x) is not Tensor:
            return scores
        return torch.where(((8 * x) % 1 > 0.5).any(1, keepdim=True), -scores, scores)


def on_grid(model: nn.Module) -> Subject:
    x = torch.tensor([[1.0, 0.5], [-1.0, 0.25], [1.0, -0.5], [-1.0, 0.0]])
    return Subject(
        model=model,
        test=[Batch((x,), torch.tensor([0, 1, 0, 1]))],
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(torch.tensor(-2.0), torch.tensor(2.0)),
    )


def narrow() -> Subject:
    """Three units a layer of large weights: far from the limit of infinitely many."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(20, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(3 * torch.randn(parameter.shape))
    x = torch.randn(64, 20)
    return Subject(
        model=model, test=[Batch((x,), torch.arange(64) % 3)], task=CLASSES, objective=risk(CLASSES)
    )


class Copying(nn.Module):
    """A language model that reads the token that it is to foretell."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Embedding(5, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.score(tokens.roll(-1, 1))


def copying() -> Subject:
    torch.manual_seed(0)
    tokens = torch.randint(5, (8, 13))
    batch = Batch((tokens[:, :-1],), tokens[:, 1:])
    return Subject(model=Copying(), test=[batch], task=TOKENS, objective=risk(TOKENS))


class Heavy(nn.Module):
    """A density of the plane whose mass is e^.1 times 1."""

    def __init__(self) -> None:
        super().__init__()
        self.off = nn.Parameter(torch.tensor(0.1))

    def log_prob(self, x: Tensor) -> Tensor:
        return torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1) + self.off

    def sample(self, count: int, *, generator: Generator) -> Tensor:
        return torch.randn(count, 2, generator=generator)


def heavy() -> Subject:
    subject: Subject = resolve(claims()["generative/density.mass"].demo)()
    return replace(subject, model=Heavy())


X = torch.randn(64, 4, generator=Generator().manual_seed(0))


class Odd(nn.Module):
    """Two scores, of inputs that something happens to first."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change
        self.register_buffer("calls", torch.zeros(()))
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.change(x))


def odd(change: Callable[[Tensor], Tensor]) -> Callable[[], Subject]:
    torch.manual_seed(0)
    batch = Batch((X,), (X[:, 0] > 0).long())
    return lambda: Subject(
        model=Odd(change),
        test=[batch],
        task=CLASSES,
        objective=risk(CLASSES),
        as_given=Odd(change),
    )


def exchanged() -> Subject:
    """A model that is always right, its classes in another order than the labels."""
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[5.0, 0, 0, 0], [-5.0, 0, 0, 0]]))
        model.bias.zero_()
    batch = Batch((X,), (X[:, 0] > 0).long())
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))


class Remembering(nn.Module):
    """It adds what it has counted of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x[:, :2] + self.calls


def remembering() -> Subject:
    batch = Batch((X,), (X[:, 0] > 0).long())
    return Subject(model=Remembering(), test=[batch], task=CLASSES, objective=risk(CLASSES))


def of_demo(name: str, change: Callable[[Subject], Subject]) -> Callable[[], Subject]:
    """The subject of a claim's demonstration, changed."""
    return lambda: change(resolve(claims()[name].demo)())


def off(subject: Subject, share: float = 0.1) -> Subject:
    """All weights off by a share of their spread: they solve nothing."""
    model, generator = copy.deepcopy(subject.model), Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and tensor.numel():
                spread = tensor.std() if tensor.numel() > 1 else tensor.abs()
                spread = spread if float(spread) > 0 else torch.ones_like(spread)
                tensor += share * spread * torch.randn(tensor.shape, generator=generator).to(tensor)
    return replace(subject, model=model)


def becoming(kind: type[nn.Module], subject: Subject) -> Subject:
    """Every layer of the class that ``kind`` derives from is one of ``kind``."""
    (base,), changed = kind.__bases__, 0
    for module in subject.model.modules():
        if type(module) is base:
            module.__class__ = kind
            changed += 1
    assert changed, f"the demonstration has no {base.__name__}"
    return subject


def around(kind: Callable[[nn.Module], nn.Module], subject: Subject) -> Subject:
    """The model inside of another."""
    return replace(subject, model=kind(subject.model))


class Around(nn.Module):
    """A model that does something with what another answers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Rectified(LinearNetwork):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Contrary(DenseAssociativeMemory):
    """It updates every unit against its field."""

    def gains(self, overlaps: Tensor) -> tuple[Tensor, Tensor]:
        g, c = super().gains(overlaps)
        return -g, -c


class Backward(TorchRecurrence):
    """Its step reads the input with another sign than its pass over whole sequences."""

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().step(-x, state)


class Tripled(TorchRecurrence):
    """Its state grows threefold after each step."""

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, states = super().step(x, state)
        return y, tuple(3 * each for each in states)


class Deaf(nn.Module):
    """It sums over padding too."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x.sum(1)


class Peeking(TCN):
    """It gives the answer of the next step."""

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: State | None = None) -> Any:
        y, state = super().forward(x, lengths, state)
        return y.roll(-1, 1), state


class Understated(TCN):
    """It says that it reads three steps."""

    @property
    def receptive_field(self) -> int:
        return 3


class Grown(LRU):
    """It multiplies its state by 1.0001, whatever nu says."""

    @property
    def eigenvalues(self) -> Tensor:
        return 1.0001 * torch.polar(torch.ones_like(self.phi), self.phi)


class Loud(LRU):
    """Its input arrives twice as large."""

    def driven(self, x: Tensor) -> Tensor:
        return 2 * super().driven(x)


class Forgetful(LRU):
    """It leaves out the first input."""

    def driven(self, x: Tensor) -> Tensor:
        driven = super().driven(x)
        return torch.cat((torch.zeros_like(driven[:, :1]), driven[:, 1:]), 1)


def one_ring(subject: Subject) -> Subject:
    """The eigenvalues began on one circle."""
    initial = copy.deepcopy(subject.model)
    with torch.no_grad():
        for module in initial.modules():
            if isinstance(module, LRU):
                module.nu.fill_(float(module.nu.mean()))
    return replace(subject, initial=initial)


class Shortsighted(AttentionSeq2Seq):
    """A wider search ends with less probable targets."""

    def translate(self, *given: Any, width: int = 1, **options: Any) -> Any:
        found = super().translate(*given, width=width, **options)
        return found._replace(log_probability=found.log_probability - float(width > 1))


class Narrow(Around):
    """Quantiles a third as far apart as they are to be."""

    def forward(self, x: Tensor) -> Tensor:
        quantiles = self.inner(x)
        middle = quantiles[..., 1:2]
        return middle + (quantiles - middle) / 3


class Counting(Around):
    """It adds how many elements there are."""

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        return self.inner(x, *more) + 1e-3 * x.shape[1]


class Ordered(Around):
    """It weighs elements by their place in the list."""

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        return self.inner(x * torch.linspace(1, 2, x.shape[1]).to(x)[:, None], *more)


class Centered(Around):
    """Points from their mean."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(1, keepdim=True))


class Louder(GCNLayer):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return 2 * super().forward(x, edge_index, edge_attr)


class Numbering(Around):
    """Its answer to a node has the node's number in it."""

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        return self.inner(x, *graph) + torch.arange(len(x)).to(x)[:, None]


class Knowing(Around):
    """It knows the labels of the demonstration by the nodes' numbers."""

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        return self.inner(x, *graph) + 100 * torch.eye(3).to(x)[torch.arange(len(x)) % 3]


class Nearer(ChebConv):
    """It says that it reads its own node alone."""

    @property
    def hops(self) -> int:
        return 0


class Unnormalized(GaussianValues):
    """A log-density a nat too large."""

    def log_prob(self, output: Tensor, x: Tensor) -> Tensor:
        return super().log_prob(output, x) + 1


class Leaking(Autoencoder):
    """What it restores is the input itself, past the code."""

    def reconstruct(self, x: Tensor) -> Tensor:
        return x + 0.01 * super().reconstruct(x)


class Cliff(nn.Module):
    """Features that fall by 5 within a thousandth, between the points at which slopes are asked."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x < 2.5005, 0.001 * x, 0.001 * x - 1e4 * (x.clamp(max=2.501) - 2.5005))


def steep() -> Subject:
    """A generator of 5s, numbers about 0, and a critic with a cliff between."""
    generator, critic = Implicit(nn.Linear(1, 1), noise=1), Critic(Cliff(), 1)
    with torch.no_grad():
        generator.network.weight.fill_(1.0)
        generator.network.bias.fill_(5.0)
        critic.head.weight.fill_(1.0)
        critic.head.bias.zero_()
    x = torch.randn(20, 1, generator=Generator().manual_seed(5))
    subject: Subject = resolve(claims()["generative/gan.distance"].demo)()
    return replace(subject, model=Preprocessed(nn.Identity(), GAN(generator, critic)), test=[Batch((x,))])


class Shifted(CouplingFlow):
    """Its inverse is off by a hundredth."""

    def inverse(self, z: Tensor) -> Tensor:
        return super().inverse(z) + 0.01


class Rough(Around):
    """A network that changes its mind from one number to the next."""

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        return self.inner(x, *more) + 3 * torch.sin(1000 * x)


def recoded(subject: Subject) -> Subject:
    """The other label on every example than those for which a law over weights was certified."""
    other = [b._replace(targets=1 - b.targets) for b in subject.test if b.targets is not None]
    return replace(subject, test=other)


def rough(subject: Subject) -> Subject:
    core: Any = core_of(subject.model)
    core.network = Rough(core.network)
    return subject


def not_widest(subject: Subject) -> Subject:
    """Multipliers that are each off by a tenth, none below 0: the weights are not their sum."""
    noise = torch.rand(len(core_of(subject.model).multipliers), generator=Generator().manual_seed(1))
    core_of(subject.model).multipliers.mul_(1 + 0.1 * noise)
    return subject


def crowded(subject: Subject) -> Subject:
    """Seven random patterns of sixty units, fewer than n / (2 ln n) = 7.3, of which one is lost."""
    patterns = 2.0 * torch.randint(0, 2, (7, 60), generator=Generator().manual_seed(2)) - 1
    memory = Hopfield(60, 7, num_patterns=7, inputs="signs")
    memory.store(patterns, lambda x: x)
    return replace(subject, model=memory, test=[Batch((patterns,))])


def twins() -> Subject:
    """Two features that are one, of which the coefficients are not the shortest."""
    x = torch.arange(6.0, dtype=torch.float64)
    model = LinearRegression(2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([2.0, 0.0]))
        model.bias.zero_()
    batch = Batch((torch.stack((x, x), 1),), 2 * x)
    subject: Subject = resolve(claims()["classic/linear_regression.minimum_norm"].demo)()
    return replace(subject, model=Preprocessed(nn.Identity(), model), test=[batch], train=[batch])


def loud_output(subject: Subject) -> Subject:
    """Its sigmoids weigh a thousand times as much."""
    core_of(subject.model).coefficients.mul_(1000)
    return subject


BROKEN: dict[str, tuple[Callable[[], Subject], Verdict]] = {
    "theory/baseline.constant": (exchanged, Verdict.VIOLATED),
    "theory/behavior.label_order": (exchanged, Verdict.VIOLATED),
    "theory/behavior.random": (odd(lambda x: x + torch.randn_like(x)), Verdict.VIOLATED),
    "theory/behavior.mates": (odd(lambda x: x - x.mean(0)), Verdict.VIOLATED),
    "theory/behavior.buffers": (remembering, Verdict.VIOLATED),
    "theory/behavior.overwrites": (odd(lambda x: x.mul_(2)), Verdict.VIOLATED),
    "theory/behavior.finite": (odd(lambda x: x.log()), Verdict.VIOLATED),
    "theory/dropout.weight_scaling": (unscaled, Verdict.VIOLATED),
    # what holds in the limit is never violated: elsewhere it is measured
    "theory/mean_field.lengths": (narrow, Verdict.MEASURED),
    "theory/mean_field.gradients": (narrow, Verdict.MEASURED),
    "robust/linf.sandwich": (lambda: on_grid(TwoFaced()), Verdict.FAILED),  # certified and broken
    "sequence/causality.replacement": (copying, Verdict.VIOLATED),
    "generative/density.mass": (heavy, Verdict.VIOLATED),
    "classic/linear_regression.minimum_norm": (twins, Verdict.VIOLATED),
    "generative/gan.distance": (steep, Verdict.VIOLATED),
}

OFF = {
    "classic/perceptron.span": Verdict.VIOLATED,
    "classic/linear_regression.normal_equations": Verdict.VIOLATED,
    "classic/linear_regression.gaussian_noise": Verdict.VIOLATED,
    "classic/ridge.stationarity": Verdict.VIOLATED,
    "classic/lasso.conditions": Verdict.VIOLATED,
    "classic/softmax_regression.stationarity": Verdict.VIOLATED,
    "classic/logistic_regression.max_margin": Verdict.MEASURED,
    "classic/pca.eckart_young": Verdict.VIOLATED,
    "classic/linear_autoencoder.subspace": Verdict.MEASURED,
    "feedforward/sawtooth.pieces": Verdict.VIOLATED,
    "feedforward/pwl_interpolant.interpolates": Verdict.VIOLATED,
    "generative/diffusion.affine": Verdict.MEASURED,
    "bayes/gp.posterior": Verdict.VIOLATED,
    "bayes/laplace.posterior": Verdict.VIOLATED,
}
"""What comes out where weights are off by a tenth."""

BUGS: dict[str, tuple[Callable[[Subject], Subject], Verdict]] = {
    "classic/max_margin.optimality": (not_widest, Verdict.VIOLATED),
    # what holds in the limit is measured where there are few units
    "classic/hopfield.capacity": (crowded, Verdict.MEASURED),
    "theory/bounds.certificate": (recoded, Verdict.VIOLATED),
    "classic/hopfield.unstable_bits": (crowded, Verdict.MEASURED),
    "classic/dense_associative_memory.energy": (partial(becoming, Contrary), Verdict.VIOLATED),
    "classic/linear_network.closure": (partial(becoming, Rectified), Verdict.VIOLATED),
    "feedforward/barron.greedy": (loud_output, Verdict.MEASURED),
    "sequence/recurrence.streaming": (partial(becoming, Backward), Verdict.VIOLATED),
    "sequence/padding.invariance": (lambda subject: replace(subject, model=Deaf()), Verdict.VIOLATED),
    # a bound of a layer's formula: that a layer computes another is found by its premise, before the bound
    "sequence/gradient.bound": (partial(becoming, Tripled), Verdict.UNFOUNDED),
    "sequence/lru.stability": (partial(becoming, Grown), Verdict.VIOLATED),
    "sequence/lru.variance": (partial(becoming, Loud), Verdict.VIOLATED),
    "sequence/lru.ring": (one_ring, Verdict.VIOLATED),
    "sequence/lru.reading": (partial(becoming, Forgetful), Verdict.VIOLATED),
    "sequence/seq2seq.search": (partial(becoming, Shortsighted), Verdict.VIOLATED),
    "sequence/causality.derivative": (partial(becoming, Peeking), Verdict.VIOLATED),
    "sequence/receptive_field.support": (partial(becoming, Understated), Verdict.VIOLATED),
    "sequence/forecast.coverage": (partial(around, Narrow), Verdict.MEASURED),
    "geometric/permutation.equivariance": (partial(around, Ordered), Verdict.VIOLATED),
    "geometric/sets.twice": (partial(around, Counting), Verdict.VIOLATED),
    "geometric/pointnet.critical_set": (partial(around, Centered), Verdict.VIOLATED),
    # so it is here
    "geometric/squashing.jacobian": (partial(becoming, Louder), Verdict.UNFOUNDED),
    "geometric/wl.classes": (partial(around, Numbering), Verdict.VIOLATED),
    "geometric/wl.ceiling": (partial(around, Knowing), Verdict.VIOLATED),
    "geometric/filter.reach": (partial(becoming, Nearer), Verdict.VIOLATED),
    "generative/vae.linear": (partial(becoming, Unnormalized), Verdict.VIOLATED),
    "generative/codes.reconstruction": (partial(becoming, Leaking), Verdict.VIOLATED),
    "generative/flow.inverse": (partial(becoming, Shifted), Verdict.VIOLATED),
    "generative/diffusion.film": (lambda subject: off(subject, 1.0), Verdict.MEASURED),
    "generative/sampler.steps": (rough, Verdict.MEASURED),
}
"""What is changed of a demonstration, and what then comes out."""

BROKEN |= {name: (of_demo(name, off), verdict) for name, verdict in OFF.items()}
BROKEN |= {name: (of_demo(name, change), verdict) for name, (change, verdict) in BUGS.items()}

DEFAULT = [claim for claim in claims().values() if not claim.by_name]


@pytest.mark.parametrize("claim", DEFAULT, ids=lambda claim: claim.name)
def test_what_holds_by_default_can_be_broken(claim: Claim) -> None:
    sound = finding_of(claim, resolve(claim.demo)())
    if claim.name not in BROKEN:
        assert sound.low is None and sound.high is None, "it promises: name a model that breaks it"
        return
    limit = sound.scope in ("exists", "limit")  # promised of some model, or of larger ones: often measured
    assert sound.verdict is Verdict.HOLDS or (limit and sound.verdict is Verdict.MEASURED)
    build, verdict = BROKEN[claim.name]
    subject = build()
    assert claim.refusal(subject) == ""
    assert finding_of(claim, subject).verdict is verdict


def test_a_bound_that_is_not_of_the_model_is_not_given() -> None:
    """What is left of the sandwich is the attack, which promises nothing."""
    found = finding_of(claims()["robust/linf.sandwich"], on_grid(OffGrid()))
    assert found.verdict is Verdict.MEASURED and found.low is None


def test_the_table_names_default_claims() -> None:
    assert set(BROKEN) <= {claim.name for claim in DEFAULT}


@pytest.mark.parametrize("ask", [linf_certificate, l2_certificate])
def test_a_certificate_that_is_asked_by_name_fails_where_an_attack_contradicts_it(ask) -> None:
    assert ask(on_grid(TwoFaced())).verdict is Verdict.FAILED
