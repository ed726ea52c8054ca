"""What a masked network of bits promises (Germain et al. 2015): no look ahead, and a sum of 1."""

import math

import torch
from torch import Generator

from margin.core.findings import Finding, Subject
from margin.core.tasks import PROBABILITY
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.generative.flow.gaussian_made import GaussianMADE
from margin.generative.flow.made import MADE, negative_log_probability
from margin.nn.preprocessed import core_of, features_of

MOST_BITS = 14
"""Bits of a row of which all rows are asked."""

EXAMPLES = 4
"""Held-out examples whose Jacobian is computed."""


def is_autoregressive(subject: Subject) -> bool:
    """Whether the model is a masked network of the catalog."""
    return isinstance(core_of(subject.model), MADE | GaussianMADE)


def is_few_bits(subject: Subject) -> bool:
    """Whether the model is one of bits, so few that all rows can be asked."""
    core = core_of(subject.model)
    return isinstance(core, MADE) and core.in_features <= MOST_BITS


def causality(subject: Subject) -> Finding:
    """Whether no output depends on its own number or a later one: the Jacobian there, on held-out examples.

    Args:
        subject: A masked network.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model), torch.no_grad():
        x = features_of(subject.model, subject.test[0].inputs[0][:EXAMPLES]).flatten(1)
        J = torch.func.vmap(torch.func.jacrev(core.network))(x).unflatten(1, (-1, core.in_features))
        ahead, behind = J.triu().abs().amax(), J.tril(-1).abs().amax()
    return Finding(
        statement=f"What is said of number i of {core.in_features} depends on those before it only: the "
        f"largest derivative by itself or a later one, over {len(x)} held-out examples. By an earlier one it "
        f"is up to {float(behind):.3g}.",
        value=ahead.double(),
        unit="1",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.zeros((), dtype=torch.float64),
        premises=(),
        reference="Germain, Gregor, Murray and Larochelle 2015, Section 3, Equations 10 to 14",
    )


def total(subject: Subject) -> Finding:
    """Whether the probabilities of all rows of bits sum to 1.

    Args:
        subject: A masked network of few bits.
    """
    core = core_of(subject.model)
    with eval_mode(subject.model), torch.no_grad():
        index = torch.arange(2**core.in_features)[:, None]
        bits = (index >> torch.arange(core.in_features)) & 1
        weight = next(core.parameters())
        p = core.of_bits(bits.to(weight)).double().exp()
    return Finding(
        statement=f"The probabilities of all {len(p):,} rows of {core.in_features} bits sum to 1; the "
        f"likeliest has {float(p.max()):.3g}.",
        value=p.sum(),
        unit="1",
        range=(0.0, math.inf),
        low=torch.ones((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=1e-5 if weight.dtype == torch.float32 else 1e-10,
        premises=(),
        reference="Germain, Gregor, Murray and Larochelle 2015, Section 3, Equation 5",
    )


def demo() -> Subject:
    """A masked network of eight bits as it begins, and rows of bits."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        core = MADE(8, hidden=(16, 16))
    x = (torch.rand(12, 8, generator=Generator().manual_seed(0)) < 0.5).float()
    return Subject(model=core, test=[Batch((x,))], task=PROBABILITY, objective=negative_log_probability)
