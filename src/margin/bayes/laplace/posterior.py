r"""Laplace's approximation of a network's posterior: a Gaussian around its weights, and what it predicts.

MacKay (1992); the covariance is the inverse of the Gauss-Newton matrix and the prior's precision. Predictions
are those of the network linearized in its weights (Khan et al. 2019; Immer, Korzepa and Bauer 2021), of which
the weights' Gaussian makes a Gaussian of the outputs, or of networks whose weights are drawn.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap

from margin.bayes.laplace.curvature import Structure, chosen_structure, curvature_of
from margin.bayes.laplace.factors import Factor, affine_layers, factors, outputs_of, sizes_of
from margin.math.probability.mixtures import Mixture

Builder = Callable[[], nn.Module]
BASE = "feedforward/mlp"
SEED = 0
"""Of the draws of an evaluation: asked twice, a model answers the same."""

CHUNK = 256
"""Examples whose Jacobians are held at once."""


class LaplacePosterior(nn.Module):
    """A network, the curvature of its loss, the precision of a weight's prior and the noise of a value.

    The posterior is over the weights and biases of linear and convolutional layers; others, as the gains of a
    normalization, stay as they are.

    Args:
        builder: Makes the network.
        base: Name of the model, or the directory of the run whose weights are taken.
        structure: Of the curvature.
        prior_precision: Of a weight, to begin with.
        noise: Variance of the noise, to begin with; of classes 1.
        samples: Draws of an evaluation that draws.
    """

    RUNS = True
    noise: Tensor
    prior: Tensor
    evidence: Tensor
    count: Tensor

    def __init__(
        self,
        builder: Builder,
        base: str,
        structure: Structure,
        prior_precision: float,
        noise: float,
        samples: int,
    ) -> None:
        super().__init__()
        for name, value in {"prior_precision": prior_precision, "noise": noise}.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite: got {value}")
        if samples < 2:
            raise ValueError(f"samples must be at least 2: got {samples}")
        self.base, self.samples = base, samples
        self.net = builder()
        every = affine_layers(self.net)
        sizes = [sizes_of(layer) for layer in every.values()]
        self.structure, said = chosen_structure(sizes, structure)
        self.notes = (said,) if said else ()
        self.names = list(every)[-1:] if self.structure == "last" else list(every)
        self.curvature = curvature_of(sizes, self.structure)
        for name, number in {
            "noise": noise,
            "prior": prior_precision,
            "evidence": math.nan,
            "count": 0,
        }.items():
            self.register_buffer(name, torch.tensor(float(number), dtype=torch.float64))

    @property
    def layers(self) -> list[nn.Module]:
        """Those whose weights have a posterior, in order."""
        return [self.net.get_submodule(name) for name in self.names]

    def factors(self, x: Tensor) -> tuple[Float[Tensor, "batch outputs"], tuple[Factor, ...]]:
        """The outputs, and the Jacobian by the weights of the posterior."""
        return factors(self.net, self.layers, x)

    def weights(self) -> Float[Tensor, " weights"]:
        """The mean: of each layer's unit its weights, then its bias."""
        rows = []
        for layer in self.layers:
            weight, bias = layer.get_parameter("weight"), layer.bias
            flat = [weight.flatten(1), *([bias[:, None]] if isinstance(bias, Tensor) else [])]
            rows.append(torch.cat(flat, 1).flatten())
        return torch.cat(rows)

    def named_weights(self, flat: Float[Tensor, "*draws weights"]) -> dict[str, Tensor]:
        """Weights in the order of :meth:`weights`, by their names in the network."""
        found, start = {}, 0
        for name, layer in zip(self.names, self.layers, strict=True):
            units, inputs = sizes_of(layer)
            rows = flat[..., start : start + units * inputs].unflatten(-1, (units, inputs))
            start += units * inputs
            weight = layer.get_parameter("weight")
            if layer.bias is not None:
                found[f"{name}.bias".lstrip(".")] = rows[..., -1]
                rows = rows[..., :-1]
            found[f"{name}.weight".lstrip(".")] = rows.reshape(*flat.shape[:-1], *weight.shape)
        return found

    def linearized(
        self, x: Tensor
    ) -> tuple[Float[Tensor, "batch outputs"], Float[Tensor, "batch outputs outputs"]]:
        """Mean and covariance of the outputs of the linearized network, in float64.

        Raises:
            ValueError: The posterior has not been fitted.
        """
        self._check_fitted()
        means, spreads = [], []
        for part in x.split(CHUNK):
            out, parts = self.factors(part)
            means.append(out.double())
            spreads.append(self.curvature.spread(parts, self.noise.double(), self.prior.double()))
        return torch.cat(means), torch.cat(spreads)

    def sampled(self, x: Tensor) -> Float[Tensor, "samples batch outputs"]:
        """The outputs of networks whose weights are drawn from the posterior, the same for every example.

        Raises:
            ValueError: The posterior has not been fitted.
        """
        self._check_fitted()
        generator = Generator().manual_seed(SEED)
        off = self.curvature.draw(self.samples, self.noise.double(), self.prior.double(), generator)
        drawn = self.named_weights((self.weights().double() + off).to(x))

        def one(weights: dict[str, Tensor]) -> Tensor:
            found: Tensor = functional_call(self.net, weights, (x,))
            return found.reshape(len(found), -1)

        return vmap(one)(drawn)

    def _check_fitted(self) -> None:
        if not float(self.count):
            raise ValueError("a Laplace posterior predicts once it is fitted: it has no curvature yet")


class LaplaceClassifier(LaplacePosterior):
    r"""The class probabilities of a network under the Gaussian of its weights, as their logarithm.

    probit is MacKay's approximation, exact in no limit but cheap and smooth:

    .. math:: \operatorname{softmax}\Bigl(f_k / \sqrt{1 + \tfrac{\pi}{8} S_{kk}}\Bigr)

    linearized is the mean over draws of the linearized network's logits, sampled that over networks whose
    weights are drawn.

    Args:
        builder: Makes the network, from inputs to class logits: the recipe of ``base``.
        num_classes: Number of classes.
        base: Name of a model of the catalog that predicts classes, which is trained first, or the directory
            of a finished run, whose weights are taken as they are.
        base_options: Options of the model; a run has its own.
        structure: Gauss-Newton matrix that is kept: full; kron, a Kronecker product a layer; diag, its
            diagonal; last, the full one of the last layer; auto, full of up to 2,048 weights, else kron.
        prior_precision: Precision of each weight under its Gaussian prior of mean 0, to begin with.
        learn: Whether the precision maximizes the evidence, or stays as given.
        predictive: How probabilities are computed: probit, linearized, sampled.
        samples: Draws of linearized and sampled.

    Raises:
        ValueError: A precision is not positive, the curvature does not fit into memory, or a layer is of a
            kind whose Jacobian is not known.

    Reference:
        MacKay 1992, "The evidence framework applied to classification networks", Section 4; Ritter, Botev and
        Barber 2018, Section 3; Immer, Korzepa and Bauer 2021, Section 3.
    """

    def __init__(  # more than 7 parameters: the options of a posterior
        self,
        builder: Builder,
        num_classes: int,
        *,
        base: str = BASE,
        base_options: dict[str, Any] | None = None,
        structure: Structure = "auto",
        prior_precision: float = 1.0,
        learn: Literal["evidence", "none"] = "evidence",
        predictive: Literal["probit", "linearized", "sampled"] = "probit",
        samples: int = 100,
    ) -> None:
        super().__init__(builder, base, structure, prior_precision, 1.0, samples)
        self.num_classes, self.learn, self.rule = num_classes, learn, predictive

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, "batch classes"]:
        """The logarithm of each class's probability; before the fit the network's own logits."""
        if self.training or not float(self.count):
            return outputs_of(self.net, x)
        if self.rule == "sampled":
            found = self.sampled(x).log_softmax(-1)
            return found.logsumexp(0) - math.log(self.samples)
        mean, covariance = self.linearized(x)
        if self.rule == "probit":
            spread = covariance.diagonal(dim1=1, dim2=2)
            return (mean / (1 + math.pi / 8 * spread).sqrt()).log_softmax(-1).to(x)
        generator = Generator().manual_seed(SEED)
        draws = torch.randn(self.samples, 1, *mean.shape[1:], generator=generator, dtype=mean.dtype)
        root = torch.linalg.cholesky(covariance)
        logits = mean + (root @ draws[..., None])[..., 0]
        return (logits.log_softmax(-1).logsumexp(0) - math.log(self.samples)).to(x)


class LaplaceRegressor(LaplacePosterior):
    """The law of a value under the Gaussian of a network's weights; the output is that of the network.

    The values have Gaussian noise, whose variance is learned with the prior's precision.

    Args:
        builder: Makes the network, from inputs to one number: the recipe of ``base``.
        base: Name of a model of the catalog that predicts classes, here one output, which is trained first,
            or the directory of a finished run, whose weights are taken as they are.
        base_options: Options of the model; a run has its own.
        structure: Gauss-Newton matrix that is kept: full; kron, a Kronecker product a layer; diag, its
            diagonal; last, the full one of the last layer; auto, full of up to 2,048 weights, else kron.
        prior_precision: Precision of each weight under its Gaussian prior of mean 0, to begin with.
        noise: Variance of the noise to begin with, a share of the variance of the values.
        learn: Whether both maximize the evidence, or stay as given.
        predictive: How the law is computed: of the linearized network, a Gaussian; or sampled, the mixture of
            networks whose weights are drawn.
        samples: Draws of sampled.

    Raises:
        ValueError: A precision or variance is not positive, the curvature does not fit into memory, or a
            layer is of a kind whose Jacobian is not known.

    Reference:
        MacKay 1992, "A practical Bayesian framework for backpropagation networks", Section 2; Immer, Korzepa
        and Bauer 2021, Section 3.
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
        structure: Structure = "auto",
        prior_precision: float = 1.0,
        noise: float = 0.1,
        learn: Literal["evidence", "none"] = "evidence",
        predictive: Literal["linearized", "sampled"] = "linearized",
        samples: int = 100,
    ) -> None:
        super().__init__(builder, base, structure, prior_precision, noise, samples)
        self.learn, self.rule = learn, predictive
        self.register_buffer("shift", torch.zeros((), dtype=torch.float64))
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))

    def forward(self, x: Float[Tensor, " batch *input"]) -> Float[Tensor, " batch"]:
        """The value of each example, in the unit of the targets."""
        return self.shift.to(x) + self.unit.to(x) * outputs_of(self.net, x)[:, 0]

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, " batch *input"]) -> Mixture:
        """The law of a new value at each input, in the unit of the targets, in float64.

        Raises:
            ValueError: The posterior has not been fitted.
        """
        if self.rule == "sampled":
            means = self.sampled(x)[..., 0].double()
            law = Mixture(means, self.noise.double().expand_as(means))
        else:
            mean, covariance = self.linearized(x)
            law = Mixture(mean[None, :, 0], covariance[None, :, 0, 0] + self.noise.double())
        return law.moved(self.shift.double(), self.unit.double())
