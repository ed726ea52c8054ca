"""Generation from kept inputs (Paine et al. 2016): the same logits as the whole network's."""

import math

import torch
from torch import Generator

from margin.core.findings import Finding, Subject
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.convolution.wavenet_generation import CachedSteps

EXAMPLES, STEPS = 2, 1536
ROUNDING = 1e-10
"""In parts of the largest logit, in float64."""


def is_wavenet(subject: Subject) -> bool:
    """Whether the model is the catalog's WaveNet."""
    return isinstance(core_of(subject.model), WaveNet) and len(subject.test) > 0


@torch.no_grad()
def cached(subject: Subject) -> Finding:
    """The largest difference between logits computed step by step from rings, and by the whole network.

    Args:
        subject: The catalog's WaveNet; it reads held-out examples.
    """
    core = in_double(core_of(subject.model))
    if not isinstance(core, WaveNet):
        raise ValueError(f"this is asked of a WaveNet: got {type(core).__name__}")
    tokens = subject.test[0].inputs[0][:EXAMPLES, :STEPS]
    with eval_mode(core):
        whole = core(tokens)
        steps = CachedSteps(core.trunk, core.initial(tokens))
        gap = torch.zeros((), dtype=torch.float64)
        for t, token in enumerate(tokens.unbind(1)):
            logits = core.head(steps(core.embedding(token)))
            gap = torch.maximum(gap, (logits - whole[:, t]).abs().amax().cpu())
    zero = torch.zeros((), dtype=torch.float64)
    return Finding(
        statement="Logits computed step by step from the inputs that each layer keeps are those of the whole "
        f"network: the largest difference in {tokens.shape[1]:,} steps.",
        value=gap,
        unit="nats",
        range=(0.0, math.inf),
        low=zero,
        high=zero,
        tolerance=ROUNDING * max(1.0, float(whole.abs().amax()) if whole.numel() else 1.0),
        premises=(),
        reference="Paine et al. 2016, Section 2",
    )


def demo() -> Subject:
    """A small WaveNet, whose rings wrap several times in 40 tokens."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = WaveNet(5, width=4, skip=4, layers=3)
    tokens = torch.randint(5, (2, 41), generator=Generator().manual_seed(0))
    batch = Batch((tokens[:, :-1],), tokens[:, 1:])
    return Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS))
