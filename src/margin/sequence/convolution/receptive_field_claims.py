"""Receptive fields (van den Oord et al. 2016): how far back the oldest input is that an output reads."""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import in_double
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence
from margin.sequence.convolution.causal_convolution import CausalConv1d
from margin.sequence.convolution.tcn import classifier
from margin.sequence.recurrent.heard import from_the_front, outermost

LONGEST = 1 << 16
"""Steps beyond which a receptive field is not measured."""

LONG = 4096
"""Steps of the sequences that are asked where no more are needed to see beyond the stated field."""

OUTPUTS, EXAMPLES = 4, 4


def bounded(subject: Subject) -> list[tuple[str, Recurrence, int]]:
    """The outermost recurrences that state a receptive field."""
    found = (
        (name, layer, getattr(layer, "receptive_field", None)) for name, layer in outermost(subject.model)
    )
    return [(name, layer, field) for name, layer, field in found if isinstance(field, int)]


def has_receptive_field(subject: Subject) -> bool:
    """Whether a recurrence of the model states its receptive field."""
    return len(bounded(subject)) > 0


def gradient_by_lag(layer: Recurrence, time: int) -> Tensor:
    """The largest derivative of the last outputs by the input 0, 1, 2, .. steps before, on random sequences.

    Args:
        layer: A recurrence in float64.
        time: Steps of the sequences.

    Returns:
        Largest absolute derivatives by lag, of shape (time,).
    """
    generator = Generator().manual_seed(0)
    parameter = next(layer.parameters())
    draw = torch.randn(EXAMPLES, time, layer.input_size, generator=generator, dtype=torch.float64)
    x = draw.to(parameter.device).requires_grad_()
    with torch.enable_grad():
        y, _ = layer(x)
        v = torch.randn(EXAMPLES, y.shape[2], generator=generator, dtype=torch.float64).to(x.device)
        largest = x.new_zeros(time)
        for back in range(min(OUTPUTS, time)):
            (gradient,) = torch.autograd.grad((y[:, time - 1 - back] * v).sum(), x, retain_graph=True)
            lags = gradient.abs().amax((0, 2)).flip(0)[back:]
            largest[: len(lags)] = torch.maximum(largest[: len(lags)], lags)
    return largest.detach().cpu()


def asked_steps(layer: Recurrence, field: int, longest: int) -> int:
    """How long the sequences must be that would show a field larger than the stated one.

    Twice the field, the longest sequence at hand, and what the convolutions in the layer could reach if each
    read the one before it, whichever is longest; of these beyond :data:`LONG` the field alone counts.

    Args:
        layer: A recurrence.
        field: The receptive field that it states.
        longest: Steps of the longest held-out sequence.
    """
    reach = sum(part.reach for part in layer.modules() if isinstance(part, CausalConv1d))
    return max(field, min(max(2 * field, longest, 1 + reach), LONG)) + 2 * OUTPUTS


def support(subject: Subject) -> Finding:
    """The largest lag at which an output of each layer depends on an input, plus 1, against what it states.

    Measured by derivatives on random sequences longer than the stated field, see :func:`asked_steps`: an
    input further back than stated that is read is seen if it is in them. Shut rectifiers and weights of 0
    make the field smaller.

    Args:
        subject: A model with recurrences that state a receptive field.
    """
    layers = dict(outermost(in_double(subject.model)))
    longest = max((x.shape[1] for batch in subject.test for x in batch.inputs if x.ndim > 1), default=0)
    names, values, promised, curves, failure = [], [], [], {}, ""
    for name, _, field in bounded(subject):
        lags = torch.zeros(0)
        if field > LONGEST:
            failure = f"{name} states {field:,} steps: more than {LONGEST:,} are not measured"
        else:
            lags = gradient_by_lag(layers[name], asked_steps(layers[name], field, longest))
            curves[f"{name}: derivative by lag"] = lags
        if not bool(lags.isfinite().all()):
            failure = f"the derivatives of {name} are not finite"
        names.append(name)
        values.append(int(lags.nonzero().max()) + 1 if bool(lags.any()) else 0)
        promised.append(field)
    return Finding(
        statement="An output depends on no input further back than the receptive field its layer states.",
        value=torch.tensor(values),
        unit="steps",
        range=(0.0, math.inf),
        high=torch.tensor(promised),
        labels=tuple(names),
        premises=tuple(from_the_front(name, layer) for name, layer, _ in bounded(subject)),
        reference="van den Oord et al. 2016, Section 2.1; Bai, Kolter and Koltun 2018, Section 3.2",
        failure=failure,
        curves=curves,
    )


def demo() -> Subject:
    """A TCN of two blocks, 13 steps of field."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 2, hidden=8, layers=2)
    x = torch.randn(4, 20, 2, generator=Generator().manual_seed(0))
    batch = Batch((x,), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
