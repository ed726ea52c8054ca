"""A generator whose law is known, on which questions to generators are tried: round Gaussians, mixed."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.data.sets.mixture_plane import ring
from margin.engine.objectives import negative_log_density


class RoundMixture(nn.Module):
    r"""The law of equal weights on Gaussians N(m_k, std^2 I): sampled, and its density, exactly.

    Args:
        means: (K, d).
        std: Standard deviation of each coordinate, positive.
    """

    means: Tensor

    def __init__(self, means: Float[Tensor, "modes dim"], *, std: float) -> None:
        super().__init__()
        self.register_buffer("means", means)
        self.std = std

    def sample(self, count: int, *, generator: Generator) -> Float[Tensor, "count dim"]:
        """Rows drawn from the mixture; the components at random."""
        mode = torch.randint(len(self.means), (count,), generator=generator).to(self.means.device)
        noise = torch.randn(count, self.means.shape[1], generator=generator).to(self.means)
        return self.means[mode] + self.std * noise

    def log_prob(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """The log-density of each row, in nats."""
        apart = (x[:, None] - self.means).square().sum(-1) / self.std**2
        constant = x.shape[1] * math.log(self.std * math.sqrt(2 * math.pi)) + math.log(len(self.means))
        return (-apart / 2).logsumexp(1) - constant

    def forward(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """The log-density of each row."""
        return self.log_prob(x)


def subject_of(model: nn.Module, *, examples: int = 400) -> Subject:
    """A generator beside the ring of eight Gaussians: half of it held out.

    Args:
        model: Draws points of the plane.
        examples: Of both parts together.
    """
    data = ring(examples=examples, test=0.5, val=0.0)
    parts = {name: (Batch((arrays.inputs[0],), arrays.targets),) for name, arrays in data.splits.items()}
    return Subject(
        model=model,
        test=parts["test"],
        train=parts["train"],
        task=DENSITY,
        objective=negative_log_density,
        class_names=tuple(str(k) for k in range(8)),
    )


def ring_subject() -> Subject:
    """The ring's own law beside examples of it."""
    truth = ring(examples=8, test=0.0, val=0.0).encoding["truth"]
    return subject_of(RoundMixture(torch.tensor(truth["means"]), std=truth["std"]))
