r"""What the mean-field theory of wide random networks promises of a subject's own weights, layer by layer.

Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli (2016); Schoenholz, Gilmer, Ganguli and Sohl-Dickstein
(2017). The theory speaks of weights as they are drawn: where those that training began with are known, it is
asked of them, and the trained ones are shown beside.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.theory.signal.mean_field import Activation, chi, next_length
from margin.theory.signal.path import Call, NotAChainError, Stage, chain_of, few_inputs, watched
from margin.theory.signal.sizes import Signal, looked_at, signal
from margin.theory.signal.symmetry import POINTWISE

EXAMPLES = 256
CLOSE = 0.1
"""Share within which a network of finite width is said to follow the limit."""

OFF = 6.0
"""Standard errors by which the mean weight of a layer may differ from 0."""

PASSING: tuple[type[nn.Module], ...] = (nn.Dropout, nn.Flatten)


class Predicted(NamedTuple):
    """Of each hidden layer and example: the predicted length of pre-activations, and the factor chi."""

    lengths: Float[Tensor, "hidden examples"]
    factors: Float[Tensor, "hidden examples"]


def is_random_net(subject: Subject) -> bool:
    """Whether the model is a chain of two Linear layers or more with pointwise activations, on rows."""
    if not len(subject.test):
        return False
    try:
        stages = chain_of(subject.model, few_inputs(subject))
    except NotAChainError:
        return False
    return len(stages) > 1 and all(
        isinstance(stage.layer, nn.Linear)
        and len(stage.given) == 2
        and all(type(module) in POINTWISE or type(module) in PASSING for _, module in stage.after)
        for stage in stages
    )


def deviations(layer: nn.Linear | nn.Conv2d) -> tuple[float, float]:
    r"""The layer's :math:`\sigma_w = \sqrt{n\, \overline{w^2}}`, n its inputs, and :math:`\sigma_b`."""
    weight, bias = layer.weight.detach().double(), layer.bias
    sigma_w = math.sqrt(weight.shape[1] * float(weight.square().mean()))
    return sigma_w, 0.0 if bias is None else math.sqrt(float(bias.detach().double().square().mean()))


def predict(stages: Sequence[Stage], first: Float[Tensor, " examples"]) -> Predicted:
    """The length map and the factors chi along a network, from its weights' second moments alone.

    Args:
        stages: The layers, in evaluation mode.
        first: The mean square of each example's inputs to the first layer.
    """
    lengths, factors = [], []
    sigma_w, sigma_b = deviations(stages[0].layer)
    q = sigma_w**2 * first + sigma_b**2
    for before, stage in pairwise(stages):
        lengths.append(q)
        sigma_w, sigma_b = deviations(stage.layer)
        if not math.isfinite(sigma_w + sigma_b):
            sigma_w = sigma_b = 0.0
            q = q * math.nan  # nothing is known from here on
        phi = _between(before)
        factors.append(chi(phi, q, sigma_w))
        q = next_length(phi, q, sigma_w, sigma_b)
    return Predicted(torch.stack(lengths), torch.stack(factors))


def _between(stage: Stage) -> Activation:
    layers = [module for _, module in stage.after if type(module) not in PASSING]

    def phi(u: Tensor) -> Tensor:
        for layer in layers:
            u = layer(u.clone() if getattr(layer, "inplace", False) else u)
        return u

    return phi


def lengths(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    r"""The mean square of each hidden layer's pre-activations, in units of what the length map predicts.

    Prediction: :math:`q^1 = \sigma_w^2 |x|^2 / n + \sigma_b^2`, then the map, example by example, with the
    :math:`\sigma` that each layer's weights have.

    Args:
        subject: A chain of Linear layers with pointwise activations.
        examples: Held-out examples at most, drawn at random.
    """
    model, whose = _drawn(subject)
    stages, found, first, runs = _measured(model, subject, examples)
    predicted = predict(stages, first).lengths
    measured = torch.stack([level.activation for level in found.levels.values()])[:-1]
    weight = found.weight / found.weight.sum()
    q, q_hat = measured @ weight, predicted @ weight
    curves = {"depth": torch.arange(1, len(q) + 1).double(), "predicted": q_hat, "measured": q}
    if model is not subject.model:
        after = _measured(subject.model, subject, examples)[1]
        curves["after training"] = torch.stack([e.activation for e in after.levels.values()])[:-1] @ weight
    return Finding(
        statement=f"The mean square of hidden pre-activations of {whose}, in units of the mean-field "
        f"prediction for infinite width, over {len(first):,} held-out examples; the least hidden width is "
        f"{min(stage.units for stage in stages[:-1]):,}.",
        value=q / q_hat,
        unit="predicted",
        range=(0.0, math.inf),
        low=torch.tensor(1.0),
        high=torch.tensor(1.0),
        tolerance=CLOSE,
        scope="limit",
        labels=tuple(found.levels)[:-1],
        failure=_runs(runs) or _failure(q, q_hat),
        premises=(_independent(stages, drawn=model is not subject.model),),
        curves=curves,
        reference="Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 3",
    )


def gradient_growth(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    r"""The mean square of gradients in hidden pre-activations, in units of what is predicted from the last.

    Prediction, back from the gradient in the last layer's output: a layer of :math:`n_l` units before one of
    :math:`n_{l+1}` has :math:`\chi_1(q^l)\, n_{l+1} / n_l` times its mean square.

    Args:
        subject: A chain of Linear layers with pointwise activations, and an objective.
        examples: Held-out examples at most, drawn at random.
    """
    model, whose = _drawn(subject)
    stages, found, first, runs = _measured(model, subject, examples)
    predicted = predict(stages, first)
    measured = _come_back([level.gradient for level in found.levels.values()])
    widths = [stage.units for stage in stages]
    g = [measured[-1]]
    for i in reversed(range(len(stages) - 1)):
        g.insert(0, g[0] * predicted.factors[i] * widths[i + 1] / widths[i])
    weight = found.weight / found.weight.sum()
    grown, grown_hat = measured @ weight, torch.stack(g) @ weight
    factors = ", ".join(f"{float(each @ weight):.3g}" for each in predicted.factors[:8])
    return Finding(
        statement=f"The mean square of the loss gradient in hidden pre-activations of {whose}, in "
        f"units of the mean-field prediction from the last layer; chi_1 layer by layer: {factors}"
        f"{', ...' if len(predicted.factors) > 8 else ''}.",
        value=(grown / grown_hat)[:-1],
        unit="predicted",
        range=(0.0, math.inf),
        low=torch.tensor(1.0),
        high=torch.tensor(1.0),
        tolerance=CLOSE,
        scope="limit",
        labels=tuple(found.levels)[:-1],
        failure=_runs(runs) or _failure(grown, grown_hat),
        premises=(
            _independent(stages, drawn=model is not subject.model),
            Premise(
                "weights on the way back are independent of those on the way forward",
                "assumed",
                "they are the same weights; the theory takes them for independent",
            ),
        ),
        curves={
            "depth": torch.arange(1, len(grown) + 1).double(),
            "predicted": grown_hat,
            "measured": grown,
        },
        reference="Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 4",
    )


def _drawn(subject: Subject) -> tuple[nn.Module, str]:
    if subject.initial is not None:
        return subject.initial, "the network that training began with"
    return subject.model, "the network as it stands"


def _measured(
    model: nn.Module, subject: Subject, examples: int
) -> tuple[tuple[Stage, ...], Signal, Float[Tensor, " examples"], int]:
    """The layers of a chain, the signal at each, the mean square of what the first takes, the runs of it."""
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    stages = chain_of(model, few_inputs(subject))
    few = looked_at(subject, examples)
    taken: list[Tensor] = []

    def seen(call: Call) -> None:
        if call.module is stages[0].layer:
            taken.append(call.given.detach().double().square().mean(1).cpu())

    with torch.no_grad(), eval_mode(model), watched(model, seen):
        for batch in few:
            model(*batch.inputs)
    found = signal(model, few, subject.objective)
    runs = len(found.levels) // len(stages)
    # a layer's own name where the model is that layer; of several runs the first
    levels = {stage.name: level for stage, level in zip(stages, found.levels.values(), strict=False)}
    return stages, found._replace(levels=levels), torch.cat(taken), runs


def _come_back(gradients: list[Tensor]) -> Tensor:
    measured = torch.stack(gradients)
    if not bool(measured.any()):
        raise NotAsked("no gradient comes back into the model: there are no ratios of gradients")
    return measured


def _runs(runs: int) -> str:
    return "" if runs == 1 else f"the objective must run the model once: it ran it {runs} times"


def _failure(measured: Tensor, predicted: Tensor) -> str:
    if not bool((measured.isfinite() & predicted.isfinite()).all()):
        return "a length or a gradient is not finite"
    return "" if bool((predicted > 0).all()) else "a prediction is 0: nothing passes"


def _independent(stages: Sequence[Stage], *, drawn: bool) -> Premise:
    text = "weights and biases are independent draws of mean 0"
    worst, where = 0.0, ""
    for stage in stages:
        weight = stage.layer.weight.detach().double()
        error = float(weight.std()) / math.sqrt(weight.numel()) if weight.numel() > 1 else math.inf
        off = abs(float(weight.mean())) / error if error > 0 else math.inf
        if off >= worst:
            worst, where = off, stage.name
    evidence = f"the mean weight of layer {where!r} lies {worst:.2g} standard errors from 0, no other further"
    if not drawn:
        return Premise(text, "assumed", f"{evidence}; training makes weights depend on the data")
    return Premise(text, "sampled" if worst <= OFF else "refuted", evidence)


def demo() -> Subject:
    """A tanh network of five layers, 400 units wide, with sigma_w = 1.5 and sigma_b = 0.3, as it is drawn."""
    generator = Generator().manual_seed(2016)
    widths, layers = (20, 400, 400, 400, 400, 5), []
    for taken, given in pairwise(widths):
        layer = nn.Linear(taken, given)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(given, taken, generator=generator) * 1.5 / math.sqrt(taken))
            layer.bias.copy_(torch.randn(given, generator=generator) * 0.3)
        layers += [layer, nn.Tanh()]
    x = torch.randn(64, 20, generator=generator)
    return Subject(
        model=nn.Sequential(*layers[:-1]),
        test=[Batch((x,), torch.arange(64) % 5)],
        task=CLASSES,
        objective=risk(CLASSES),
    )
