r"""The posterior of a network's weights as a sample: chains of weights, and the mean of what they predict.

Neal (1996), "Bayesian learning for neural networks", Chapters 1 and 3. A weight's prior is Gaussian, its
precision times the number of inputs of its unit, so that a wide layer's outputs are as large as a narrow
one's; the logarithm of the noise's variance is one more coordinate.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from margin.bayes.mcmc.adaptation import Adaptation, MassMatrix
from margin.math.probability.mixtures import Mixture

Builder = Callable[[], nn.Module]
BASE = "feedforward/mlp"
AT_ONCE = 64
"""Networks whose outputs are computed in one pass."""


MIN_PROPOSALS = 10
"""Proposals after which chains that all diverge are given up."""


class SampledPosterior(nn.Module):
    """Chains of weights of one network: where they are, what was kept of them, and what diverged.

    Args:
        builder: Makes the network; each chain begins at weights of its own.
        base: Name of the model, or the directory of the run at whose weights all chains begin.
        chains: Number of chains.
        draws: Draws of each chain that are kept.
        prior_precision: Of a weight, times the inputs of its unit.
        extra: Further coordinates: one where the noise is sampled.
        mass_matrix: Of Hamiltonian trajectories.
    """

    RUNS = True
    positions: Tensor
    momenta: Tensor
    draws: Tensor
    taken: Tensor
    proposals: Tensor
    divergent: Tensor
    accepted: Tensor
    precisions: Tensor

    def __init__(  # more than 7 parameters: those of the posteriors
        self,
        builder: Builder,
        base: str,
        chains: int,
        draws: int,
        prior_precision: float,
        extra: int,
        mass_matrix: MassMatrix,
    ) -> None:
        super().__init__()
        if chains < 2:
            raise ValueError(
                f"chains must be at least 2: got {chains}; one chain cannot disagree with itself"
            )
        if draws < 1:
            raise ValueError(f"draws must be at least 1: got {draws}")
        if not 0 < prior_precision < math.inf:
            raise ValueError(f"prior_precision must be positive and finite: got {prior_precision}")
        self.base = base
        nets = [builder() for _ in range(chains)]
        self.net = nets[0].requires_grad_(False)  # a pattern: its weights are those of the draws
        if norm := next(
            (m for m in self.net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)), None
        ):
            raise ValueError(
                "chains move all weights but no running means, as of batch normalization: got "
                f"{type(norm).__name__}; layer normalization does"
            )
        self.shapes = {name: p.shape for name, p in self.net.named_parameters()}
        flat = [torch.cat([p.detach().reshape(-1) for p in net.parameters()]).double() for net in nets]
        precisions = [
            torch.full((p.numel(),), prior_precision * (p[0].numel() if p.ndim > 1 else 1))
            for p in self.net.parameters()
        ]
        dim = len(flat[0]) + extra
        start = torch.stack([torch.cat((one, one.new_zeros(extra))) for one in flat])
        for name, value in {
            "positions": start,
            "momenta": torch.zeros_like(start),
            "draws": torch.zeros(draws, chains, dim, dtype=torch.float64),
            "taken": torch.zeros((), dtype=torch.int64),
            "proposals": torch.zeros((), dtype=torch.int64),
            "divergent": torch.zeros(chains, dtype=torch.float64),
            "accepted": torch.zeros(chains, dtype=torch.float64),
            "precisions": torch.cat(precisions).double(),
        }.items():
            self.register_buffer(name, value)
        self.adaptation = Adaptation(dim, mass_matrix)

    def outputs(
        self, theta: Float[Tensor, "networks dim"], x: Float[Tensor, " batch *input"]
    ) -> Float[Tensor, "networks batch outputs"]:
        """The outputs of networks of these weights."""
        # cut at once: the backward of one slice after the other adds as many arrays of all weights
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = theta.to(x).split([*sizes, theta.shape[1] - sum(sizes)], 1)
        found = {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=False)
        }

        def one(weights: dict[str, Tensor]) -> Tensor:
            out: Tensor = functional_call(self.net, weights, (x,))
            return out.reshape(len(out), -1)

        return vmap(one, chunk_size=AT_ONCE if len(theta) > AT_ONCE else None)(found)

    def mixing(self) -> Tensor:
        """Which chains count: of one that diverged every other time no draw is averaged."""
        few = self.proposals < MIN_PROPOSALS
        return few | (self.divergent <= self.proposals / 2)

    def kept(self) -> Float[Tensor, "networks dim"]:
        """The draws of the chains that count; before there are any, where the chains are.

        Raises:
            ValueError: Every chain diverged.
        """
        if not int(self.taken):
            return self.positions
        mixing = self.mixing()
        if not bool(mixing.any()):
            raise ValueError("every chain diverged: no draw is of the posterior")
        return self.draws[: int(self.taken), mixing].flatten(0, 1)


class ChainClassifier(SampledPosterior):
    """The mean of the class probabilities of networks drawn from the posterior, as its logarithm.

    Args:
        builder: Makes the network, from inputs to class logits: the recipe of ``base``.
        num_classes: Number of classes.
        base: Name of a model of the catalog that predicts classes, or the directory of a finished run, at
            whose weights all chains begin.
        base_options: Options of the model; a run has its own.
        chains: Number of chains, at least 2.
        draws: Draws of each chain that are kept, evenly spaced over the steps after the warm-up.
        prior_precision: Precision of a weight's Gaussian prior of mean 0, times the inputs of its unit.
        mass_matrix: Of ``hmc``: ``diagonal``, from the variances of the warm-up, or ``dense``, from their
            covariance too, which knows weights that go together; it costs the square of their number.

    Raises:
        ValueError: An option is out of range, or the network has batch normalization.

    Reference:
        Neal 1996, Chapter 3.
    """

    def __init__(  # more than 7 parameters: the options of a posterior
        self,
        builder: Builder,
        num_classes: int,
        *,
        base: str = BASE,
        base_options: dict[str, Any] | None = None,
        chains: int = 4,
        draws: int = 100,
        prior_precision: float = 1.0,
        mass_matrix: MassMatrix = "diagonal",
    ) -> None:
        super().__init__(builder, base, chains, draws, prior_precision, 0, mass_matrix)
        self.num_classes = num_classes

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "batch classes"]:
        """The logarithm of the mean probability of each class."""
        found = self.outputs(self.kept(), x).log_softmax(-1)
        return found.logsumexp(0) - math.log(len(found))


class ChainRegressor(SampledPosterior):
    """The mixture of the Gaussian laws of networks drawn from the posterior; the output is its mean.

    Args:
        builder: Makes the network, from inputs to one number: the recipe of ``base``.
        base: Name of a model of the catalog that predicts classes, here one output, or the directory of a
            finished run, at whose weights all chains begin.
        base_options: Options of the model; a run has its own.
        chains: Number of chains, at least 2.
        draws: Draws of each chain that are kept, evenly spaced over the steps after the warm-up.
        prior_precision: Precision of a weight's Gaussian prior of mean 0, times the inputs of its unit.
        mass_matrix: Of ``hmc``: ``diagonal``, from the variances of the warm-up, or ``dense``, from their
            covariance too, which knows weights that go together; it costs the square of their number.
        noise: Variance of the noise, a share of the variance of the values: the median of its prior, whose
            logarithm is normal of deviation 2, or the variance itself where it is known.
        learn: Whether the noise is sampled with the weights, or known.

    Raises:
        ValueError: An option is out of range, or the network has batch normalization.

    Reference:
        Neal 1996, Chapters 1 and 3.
    """

    OUTPUTS = 1
    shift: Tensor
    unit: Tensor

    def __init__(  # more than 7 parameters: the options of a posterior
        self,
        builder: Builder,
        *,
        base: str = BASE,
        base_options: dict[str, Any] | None = None,
        chains: int = 4,
        draws: int = 100,
        prior_precision: float = 1.0,
        mass_matrix: MassMatrix = "diagonal",
        noise: float = 0.1,
        learn: Literal["noise", "none"] = "noise",
    ) -> None:
        extra = 1 if learn == "noise" else 0
        super().__init__(builder, base, chains, draws, prior_precision, extra, mass_matrix)
        if not 0 < noise < math.inf:
            raise ValueError(f"noise must be positive and finite: got {noise}")
        self.log_noise = math.log(noise)
        self.learn = learn
        if learn == "noise":
            self.positions[:, -1] = self.log_noise
        self.register_buffer("shift", torch.zeros((), dtype=torch.float64))
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))

    def log_noise_of(self, theta: Float[Tensor, "networks dim"]) -> Float[Tensor, " networks"]:
        """The logarithm of the variance of the noise, in units of the variance of the values."""
        return theta[:, -1] if self.learn == "noise" else torch.full_like(theta[:, 0], self.log_noise)

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, " batch"]:
        """The mean of the networks' values, in the unit of the targets."""
        return self.shift.to(x) + self.unit.to(x) * self.outputs(self.kept(), x)[..., 0].mean(0)

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *input"]) -> Mixture:
        """The law of a new value at each input, in the unit of the targets, in float64."""
        theta = self.kept()
        means = self.outputs(theta, x)[..., 0].double()
        noise = self.log_noise_of(theta).double().exp()
        return Mixture(means, noise[:, None].expand_as(means)).moved(self.shift.double(), self.unit.double())
