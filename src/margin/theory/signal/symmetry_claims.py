"""Hidden units have no names: a network re-labelled computes the same, and two can be labelled alike.

Hecht-Nielsen (1990) for one network, Ainsworth, Hayase and Srinivasa (2023) for two.
"""

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import copied, eval_mode
from margin.engine.loop import risk
from margin.theory.signal.chain import NotAChainError, Stage, chain_in, few_inputs
from margin.theory.signal.propagation import looked_at
from margin.theory.signal.symmetry import matching, permute_hidden, permuted, slots

ROUNDING = 1e-9
"""In float64, relative to the largest output."""

EXAMPLES = 256


def has_hidden_units(subject: Subject) -> bool:
    """Whether the model is a chain of layers whose hidden units can change places."""
    if not len(subject.test):
        return False
    try:
        _hidden(subject.model, subject)
    except NotAChainError:
        return False
    return True


def has_alike_reference(subject: Subject) -> bool:
    """Whether a second model is given that is a chain of the same layers."""
    if subject.reference_model is None or not has_hidden_units(subject):
        return False
    try:
        one, two = _hidden(subject.model, subject), _hidden(subject.reference_model, subject)
    except NotAChainError:
        return False
    kept, other = (
        [(s.name, s.given, s.layer.weight.shape, [(name, type(m)) for name, m in s.after]) for s in each]
        for each in (one, two)
    )
    return kept == other


def _hidden(model: nn.Module, subject: Subject) -> tuple[Stage, ...]:
    stages = chain_in(subject, model)
    if len(stages) < 2:
        raise NotAChainError("a network of one affine layer has no hidden unit")
    for layer in range(len(stages) - 1):
        list(slots(stages, layer))
    return stages


@torch.no_grad()
def _outputs(model: nn.Module, subject: Subject) -> Tensor:
    first = looked_at(subject, EXAMPLES)[0]
    with eval_mode(model):
        outputs: Tensor = model(*first.to(dtype=torch.float64, device=first.inputs[0].device).inputs)
    return outputs


def _gap(one: Tensor, other: Tensor) -> float:
    size = float(one.abs().max())
    gap = float((one - other).abs().max())
    return gap / size if size > 0 else gap


def permutation(subject: Subject, *, seed: int = 1990) -> Finding:
    """How far the outputs move when the units of one hidden layer change places: by rounding, in float64.

    Args:
        subject: A chain of affine layers and what may stand between; see
            :func:`margin.theory.signal.symmetry.permute_hidden`.
        seed: Of the permutations, one for each layer.
    """
    stages = _hidden(subject.model, subject)
    model, few = copied(subject.model).double(), few_inputs(subject)
    inputs = tuple(x.double() if x.is_floating_point() else x for x in few)
    outputs, generator, gaps = _outputs(model, subject), Generator().manual_seed(seed), []
    for layer, stage in enumerate(stages[:-1]):
        changed = permute_hidden(
            model, layer, torch.randperm(stage.units, generator=generator), inputs=inputs
        )
        gaps.append(_gap(outputs, _outputs(changed, subject)))
    units = [stage.units for stage in stages[:-1]]
    settings = sum(math.lgamma(count + 1) for count in units) / math.log(10)
    return Finding(
        statement="With the hidden units of a layer in another order the outputs are the same; so about "
        f"10^{settings:.4g} settings of the weights compute this function. Differences are relative to the "
        f"largest output on {len(outputs):,} examples.",
        value=torch.tensor(gaps, dtype=torch.float64),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(f"{stage.name}: {stage.units} units" for stage in stages[:-1]),
        failure="" if bool(outputs.isfinite().all()) else "an output is not finite",
    )


def alignment(subject: Subject) -> Finding:
    """How near the weights of a second model come when its hidden units are put in this one's order.

    The distance is that of all parameters, in units of what it is before. 1 says that nothing was gained,
    0 that the two are the same network written down in two orders.

    Args:
        subject: A chain of layers with a reference model of the same layers.

    Raises:
        ValueError: There is no second model, or its layers differ.
    """
    if subject.reference_model is None:
        raise ValueError("alignment needs a reference model: got none")
    few = few_inputs(subject)
    if not (_measurable(subject.model) and _measurable(subject.reference_model)):
        nothing = torch.tensor(math.nan, dtype=torch.float64)
        return _nearer(nothing, "", "a weight of one of the two models is not finite, or too large", ())
    found = matching(subject.model, subject.reference_model, inputs=few)
    before = copied(subject.reference_model).double()
    after = permuted(before, _hidden(subject.reference_model, subject), found.perms)
    moved = _gap(_outputs(before, subject), _outputs(after, subject))
    same = moved <= ROUNDING
    units = sum(len(perm) for perm in found.perms)
    kept = sum(int((perm == torch.arange(len(perm))).sum()) for perm in found.perms)
    failure = "" if found.settled else "the matching did not settle"
    if found.before == 0:
        failure = "the two models have the same weights in the same order"
    value = torch.tensor(found.after / found.before if found.before else math.nan, dtype=torch.float64)
    words = f", {found.before:.4g}; {units - kept:,} of {units:,} units change places"
    premise = Premise(
        "the second model computes the same with its units in the new order",
        "sampled" if same else "refuted",
        f"on held-out examples its outputs move by {moved:.2g} of the largest",
    )
    return _nearer(value, words, failure, (premise,))


def _measurable(model: nn.Module) -> bool:
    """Whether the length of all weights together is finite."""
    squares = [p.detach().double().square().sum().cpu() for p in model.parameters()]
    return bool(torch.stack(squares).sum().isfinite())


def _nearer(value: Tensor, words: str, failure: str, premises: tuple[Premise, ...]) -> Finding:
    return Finding(
        statement="The distance of the two models' weights after the second one's hidden units are put in "
        f"the first one's order, in units of the distance before{words}.",
        value=value,
        unit="distance before",
        range=(0.0, math.inf),
        high=torch.tensor(1.0),
        tolerance=ROUNDING,
        failure=failure,
        premises=premises,
    )


def _network(generator: Generator) -> nn.Module:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def demo() -> Subject:
    """A network of two hidden layers; its reference model is the same with its units in another order."""
    generator = Generator().manual_seed(2023)
    model = _network(generator)
    x = torch.randn(16, 4, generator=generator, dtype=torch.float64)
    reference = model
    for layer, units in enumerate((8, 6)):
        reference = permute_hidden(reference, layer, torch.randperm(units, generator=generator))
    return Subject(
        model=model,
        test=[Batch((x,), torch.arange(16) % 3)],
        task=CLASSES,
        objective=risk(CLASSES),
        reference_model=reference,
    )


def apart_demo() -> Subject:
    """The same two, but the second one's weights were moved besides, by a third of their deviation."""
    subject, generator = demo(), Generator().manual_seed(7)
    moved = copied(subject.reference_model or subject.model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=1 / 3
            )
    return replace(subject, reference_model=moved)
