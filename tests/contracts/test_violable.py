"""What a default audit calls "holds" can come out otherwise: for each claim of any model, one that breaks it.

In scope are the default claims of theory and robustness, and of the areas those that are asked of any kind of
model. A claim without a promise measures, and needs no such model; every other one stands in the table.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.catalog import Claim, claims, resolve
from margin.core.findings import Subject, Verdict, finding_of
from margin.core.tasks import CLASSES, TOKENS
from margin.core.types import Batch, Domain
from margin.engine.loop import risk


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


def off_grid() -> Subject:
    x = torch.tensor([[1.0, 0.5], [-1.0, 0.25], [1.0, -0.5], [-1.0, 0.0]])
    return Subject(
        model=OffGrid(),
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
    # a bound that is not of this model is not given: what is left is the attack, which promises nothing
    "robust/linf.sandwich": (off_grid, Verdict.MEASURED),
    "sequence/causality.replacement": (copying, Verdict.VIOLATED),
    "generative/density.mass": (heavy, Verdict.VIOLATED),
}


def of_any_model(claim: Claim) -> bool:
    """Whether a default audit puts a claim to models that no one here wrote."""
    kinds = [need for need in claim.needs if need.model or need.of == "model"]
    return not claim.by_name and (claim.name.startswith(("theory/", "robust/")) or not kinds)


DEFAULT = [claim for claim in claims().values() if of_any_model(claim)]


@pytest.mark.parametrize("claim", DEFAULT, ids=lambda claim: claim.name)
def test_what_holds_by_default_can_be_broken(claim: Claim) -> None:
    sound = finding_of(claim, resolve(claim.demo)())
    if claim.name not in BROKEN:
        assert sound.low is None and sound.high is None, "it promises: name a model that breaks it"
        return
    assert sound.verdict is Verdict.HOLDS
    build, verdict = BROKEN[claim.name]
    subject = build()
    assert claim.refusal(subject) == ""
    assert finding_of(claim, subject).verdict is verdict


def test_the_table_names_default_claims() -> None:
    assert set(BROKEN) <= {claim.name for claim in DEFAULT}
