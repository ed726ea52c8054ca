"""Claims of autoencoders: what a code keeps, what its coordinates do, and the bounds of a variational one.

Reconstructions beside the originals, and traversals of a coordinate; of a variational autoencoder the gap of
its bound, what its code costs and what the decoder still has to say, and coordinates that collapsed.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CODES
from margin.core.types import Batch
from margin.data.sets.tiny.tables import values
from margin.engine.evaluation import eval_mode, sample_examples
from margin.engine.loop import learn
from margin.generative.autoencoder.distributions import GaussianValues, divergence_by_coordinate
from margin.generative.autoencoder.model import Autoencoder, dense_autoencoder, restoration_error
from margin.generative.autoencoder.vae import VAE, dense_vae
from margin.generative.autoencoder.vae_bounds import (
    all_log_weights,
    elbo,
    marginal_log_prob,
    negative_elbo,
    posterior,
)
from margin.nn.preprocessed import core_of, features_of

EXAMPLES = 1000
"""Held-out examples that are looked at, at most."""

SHOWN, STEPS = 10, 7
"""Pictures of a row of reconstructions, and of a traversal."""

QUANTILES = (0.05, 0.95)
"""Between which quantiles of its own values a coordinate is moved."""


def reconstructs(subject: Subject) -> bool:
    """Whether the model restores an input from its code."""
    return callable(getattr(core_of(subject.model), "reconstruct", None))


def has_codes(subject: Subject) -> bool:
    """Whether the model restores an input, or encodes it and decodes the code."""
    core = core_of(subject.model)
    both = all(callable(getattr(core, name, None)) for name in ("encode", "decode"))
    return reconstructs(subject) or (both and subject.task.name == CODES.name)


def is_coder(subject: Subject) -> bool:
    """Whether the model is one of this area's autoencoders, variational or not."""
    return isinstance(core_of(subject.model), Autoencoder | VAE)


def inputs_of(subject: Subject) -> tuple[Tensor, Tensor, Tensor | None]:
    """Held-out inputs in the model's units, their weights and their labels.

    At most :data:`EXAMPLES`, drawn at random.
    """
    batches = sample_examples(subject.test, EXAMPLES).batches
    x = torch.cat([features_of(subject.model, b.inputs[0]) for b in batches])
    ones = [torch.ones(len(b.inputs[0])) if b.weight is None else b.weight.cpu() for b in batches]
    known = [b.targets for b in batches if b.targets is not None and b.targets.ndim == 1]
    label = torch.cat(known) if len(known) == len(batches) else None
    weight = torch.cat(ones).double()
    keep = weight > 0
    return x[keep.to(x.device)], weight[keep], None if label is None else label[keep.to(label.device)]


def affine_decoder(core: Any) -> bool:
    """Whether what is decoded is one affine map of the code, so that it fills a subspace of its dimension.

    Bits are a bent function of it, and a decoder that reads the class fills a subspace for each.
    """
    decoder = getattr(core, "decoder", None)
    if decoder is None or getattr(core, "discrete", False) or getattr(core, "num_classes", 0):
        return False
    layers = [m for m in decoder.modules() if not list(m.children())]
    return bool(layers) and all(isinstance(m, nn.Linear | nn.Identity) for m in layers)


def least_share(x: Float[Tensor, "batch dim"], weight: Float[Tensor, " batch"], components: int) -> float:
    """The share of the variance that no affine subspace of so many dimensions holds: PCA's.

    Reference: Eckart and Young 1936, Section 3.
    """
    share = (weight / weight.sum())[:, None]
    centered = (x - (share * x).sum(0)) * share.sqrt()
    spectrum = torch.linalg.svdvals(centered).square()
    return float(spectrum[components:].sum() / spectrum.sum())


@torch.no_grad()
def reconstruction(subject: Subject) -> Finding:
    """The share of the inputs' variance that is lost on the way through the code, compared with PCA's.

    A decoder that is affine fills a subspace of the code's dimension and cannot lose less than PCA of these
    very inputs; a bent one can.

    Args:
        subject: A model that restores inputs from codes.
    """
    core, (x, weight, _) = core_of(subject.model), inputs_of(subject)
    with eval_mode(subject.model):
        restored, codes = core.reconstruct(x), core.encode(x)
    rows, back = (t.flatten(1).double().cpu() for t in (x, restored))
    share = (weight / weight.sum())[:, None]
    total = (share * (rows - (share * rows).sum(0)).square()).sum()
    lost = (share * (rows - back).square()).sum() / total
    m, finite = codes.flatten(1).shape[1], bool(lost.isfinite())
    least, affine = least_share(rows, weight, m), affine_decoder(core)
    evidence = "the decoder is a chain of affine maps" if affine else ""
    premise = Premise("what is decoded fills an affine subspace of the code's dimension", "proved", evidence)
    return Finding(
        statement=f"Of the variance of {len(rows)} held-out inputs this share is lost through codes of {m} "
        f"numbers; PCA of these very inputs by {m} components loses {least:.4g}"
        f"{', and no affine decoder less' if affine else ''}.",
        value=lost,
        unit="share of variance",
        range=(0.0, math.inf),
        low=torch.tensor(least, dtype=torch.float64) if affine else None,
        tolerance=1e-5 if affine else 0.0,
        premises=(premise,) if affine else (),
        failure="" if finite else "a reconstruction is not finite, or the inputs do not vary",
        curves={"originals": x[:SHOWN].cpu(), "reconstructions": restored[:SHOWN].cpu()},
    )


@torch.no_grad()
def traversal(subject: Subject) -> Finding:
    """How far each coordinate of the code moves what is decoded, the others at their means.

    Args:
        subject: An autoencoder, variational or not.
    """
    core, (x, _, label) = core_of(subject.model), inputs_of(subject)
    with eval_mode(subject.model):
        codes = core.encode(x)
        paths = torch.stack([decoded(core, path, x) for path in moved(codes)])
    moves = (paths[:, -1] - paths[:, 0]).flatten(1).double().cpu().square().mean(1).sqrt()
    finite = bool(moves.isfinite().all())
    order = moves.argsort(descending=True)
    curves = {"traversal": paths[order.to(paths.device)][:SHOWN].cpu()}
    if codes.shape[1] == 2:
        curves["codes"] = codes.cpu()
        if label is not None and not label.is_floating_point():
            curves["labels of codes"] = label.cpu()
    return Finding(
        statement="What is decoded moves by so much, root mean square over its features, as one coordinate "
        f"of the code goes from its {QUANTILES[0]:.0%} to its {QUANTILES[1]:.0%} quantile over {len(x)} "
        "held-out inputs and the others stay at their means.",
        value=moves,
        unit="model units",
        range=(0.0, math.inf),
        labels=tuple(f"code {i + 1}" for i in range(len(moves))),
        failure="" if finite else "what is decoded is not finite",
        curves=curves,
    )


def moved(codes: Float[Tensor, "batch code"]) -> Float[Tensor, "code steps code"]:
    """For each coordinate the codes along it, the others at their means."""
    ends = torch.tensor(QUANTILES).to(codes)
    low, high = codes.quantile(ends, dim=0)
    t = torch.linspace(0, 1, STEPS).to(codes)
    paths = codes.mean(0).repeat(codes.shape[1], STEPS, 1)
    for k in range(codes.shape[1]):
        paths[k, :, k] = low[k] + t * (high[k] - low[k])
    return paths


def decoded(core: Any, codes: Float[Tensor, "steps code"], x: Tensor) -> Tensor:
    """What codes stand for, in the shape of the inputs, of the first class where the decoder reads one."""
    conditional = bool(getattr(core, "num_classes", 0))
    label = (torch.zeros(len(codes), dtype=torch.long, device=codes.device),) if conditional else ()
    out: Tensor = core.decode(codes, *label)
    return out.reshape(len(codes), *x.shape[1:])


def demo() -> Subject:
    """A linear autoencoder of two numbers as it begins, and forty rows of three features."""
    x = values().splits["train"].inputs[0].float()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = dense_autoencoder(3, code=2, hidden=())
    return Subject(model=model.eval(), test=(Batch((x,)),), task=CODES, objective=restoration_error)


def learned_demo() -> Subject:
    """The same after a short training: it has nearly found the components of PCA."""
    subject = demo()
    learn(subject.model, restoration_error, subject.test[0], steps=200, lr=0.05)
    return subject


def bent_demo() -> Subject:
    """The same with a hidden layer, which promises nothing."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = dense_autoencoder(3, code=2, hidden=(8,))
    return dataclasses.replace(demo(), model=model.eval())


DRAWS = 256
"""Codes drawn for each input where a bound is estimated."""

SIZES, PAIRS = (1, 8, 32), 200_000
"""Draws of the weighted bounds of a decoder that is one cheap map, and its pairs of an input and a code."""

GAP_EXAMPLES = 100
"""Held-out examples that are looked at where many codes are drawn for each, at most."""

ACTIVE = 0.01
"""Variance over the inputs above which a coordinate's posterior mean counts as used."""


class Seen(NamedTuple):
    """Held-out inputs in the model's units, labels for a conditional model, weights, and which they are."""

    x: Tensor
    label: Tensor | None
    weight: Tensor
    words: str


def is_linear_vae(subject: Subject) -> bool:
    """Whether it is one with a Gaussian decoder that is one affine map, and reads no label."""
    core = core_of(subject.model)
    return isinstance(core, VAE) and not bends(core)


def bends(core: VAE) -> str:
    """What keeps p(x|z) from being a normal law with a mean affine in z; "" where nothing does."""
    if not isinstance(core.likelihood, GaussianValues):
        return "likelihood (bits)"
    layers = [(name, m) for name, m in core.decoder.named_modules() if not list(m.children())]
    bent = [f"decoder.{name} ({type(m).__name__})" for name, m in layers if not isinstance(m, nn.Linear)]
    if bent or core.num_classes:
        return ", ".join(bent) or "decoder (reads the label)"
    return "" if len(layers) == 1 else f"decoder ({len(layers)} affine maps)"


def seen(subject: Subject, limit: int) -> Seen:
    """At most ``limit`` of the held-out examples of weight above 0, drawn at random."""
    core, rows, labels, weights = core_of(subject.model), [], [], []
    found = sample_examples(subject.test, limit)
    for batch in found.batches:
        weight = torch.ones(len(batch.inputs[0])) if batch.weight is None else batch.weight.cpu()
        keep = (weight > 0).nonzero()[:, 0]
        rows.append(features_of(subject.model, batch.inputs[0][keep]))
        weights.append(weight[keep].double())
        if getattr(core, "num_classes", 0) and batch.targets is not None:
            labels.append(batch.targets[keep])
    label = torch.cat(labels) if labels else None
    return Seen(torch.cat(rows), label, torch.cat(weights), found.words())


def mean_with_error(
    terms: Float[Tensor, " batch *measures"], weight: Float[Tensor, " batch"]
) -> tuple[Float[Tensor, "*measures"], Float[Tensor, "*measures"]]:
    """Weighted means over examples, and their standard errors."""
    terms = terms.double().cpu()
    share = (weight / weight.sum()).reshape(-1, *[1] * (terms.ndim - 1))
    mean = (share * terms).sum(0)
    return mean, (share * (terms - mean)).square().sum(0).sqrt()


def bounds_of(weights: Float[Tensor, "draws batch"], count: int) -> Float[Tensor, " batch"]:
    """The importance-weighted bound of ``count`` draws for each input, averaged over the groups drawn."""
    return weights.unflatten(0, (-1, count)).logsumexp(1).mean(0) - math.log(count)


@torch.no_grad()
def drawn_weights(subject: Subject, draws: int) -> tuple[Seen, Tensor]:
    """Held-out examples, their bits drawn once, and the logarithms of their importance weights."""
    core, (x, label, weight, words) = core_of(subject.model), seen(subject, GAP_EXAMPLES)
    with eval_mode(subject.model) as generator:
        x = core.likelihood.observed(x, generator)
        found = all_log_weights(core, x, draws, generator, label)
    return Seen(x, label, weight, words), found.double().cpu()


def gap(subject: Subject) -> Finding:
    r"""ELBO and importance-weighted bounds of held-out inputs, and how far the last is above the first.

    The gap is KL(q(z|x) || p(z|x)), but for what the last bound itself lacks; that is little where the
    effective number of draws :math:`(\sum w)^2 / \sum w^2` is large.

    Args:
        subject: A variational autoencoder.
    """
    (_, label, weight, words), log_w = drawn_weights(subject, DRAWS)
    bounds = [log_w.mean(0), *(bounds_of(log_w, k) for k in (16, DRAWS))]
    effective = (2 * log_w.logsumexp(0) - (2 * log_w).logsumexp(0)).exp()
    mean, stderr = mean_with_error(torch.stack([*bounds, bounds[-1] - bounds[0]], 1), weight)
    return Finding(
        statement=f"Bounds on the log-likelihood of {words}"
        f"{'' if label is None else ' given their labels'}, {DRAWS} codes drawn for each, and the gap that "
        f"the encoder's guess leaves. Of {DRAWS} weights {float(effective.mean()):.1f} count in the mean, "
        f"{float(effective.min()):.1f} at least; where few count, the last bound is itself far below.",
        value=mean,
        unit="nats",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=stderr,
        labels=("ELBO", "IWAE-16", f"IWAE-{DRAWS}", "gap"),
        failure="" if bool(mean.isfinite().all()) else "a bound is not finite",
    )


@torch.no_grad()
def rate_distortion(subject: Subject) -> Finding:
    """What the code costs and what the decoder still has to say: -ELBO is their sum.

    Args:
        subject: A variational autoencoder.
    """
    core, (x, label, weight, words) = core_of(subject.model), seen(subject, EXAMPLES)
    with eval_mode(subject.model) as generator:
        x = core.likelihood.observed(x, generator)
        shares = divergence_by_coordinate(*core.posterior(x))
        bound = elbo(core, x, 8, generator, label)
    rate = shares.sum(1)
    (mean, stderr), parts = (
        mean_with_error(torch.stack((rate, -bound - rate), 1), weight),
        mean_with_error(shares, weight)[0],
    )
    return Finding(
        statement=f"Rate KL(q(z|x) || p(z)) and distortion -E_q[log p(x|z)] of {words}; "
        f"-ELBO is their sum, {float(mean.sum()):.4g}. Trained with beta = {core.beta:g}: a larger "
        "beta buys a smaller rate for more distortion.",
        value=mean,
        unit="nats",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=stderr,
        labels=("rate", "distortion"),
        failure="" if bool(mean.isfinite().all()) else "a term is not finite",
        curves={"nats of each coordinate": parts.sort(descending=True).values},
    )


@torch.no_grad()
def collapse(subject: Subject) -> Finding:
    """The share of the code's coordinates that say anything of the input.

    Args:
        subject: A variational autoencoder.
    """
    core, (x, _, weight, words) = core_of(subject.model), seen(subject, EXAMPLES)
    with eval_mode(subject.model) as generator:
        mean, log_scale = core.posterior(core.likelihood.observed(x, generator))
    center, _ = mean_with_error(mean, weight)
    variance, _ = mean_with_error((mean.double().cpu() - center).square(), weight)
    nats, _ = mean_with_error(divergence_by_coordinate(mean, log_scale), weight)
    active = int((variance > ACTIVE).sum())
    idle = f"{float(nats[variance <= ACTIVE].sum()):.2g} of {float(nats.sum()):.4g} nats"
    unused = f" The others carry {idle} of the rate." if active < len(variance) else ""
    finite = bool(variance.isfinite().all() and nats.isfinite().all())
    return Finding(
        statement=f"{active} of {len(variance)} coordinates of the code are used: their posterior mean "
        f"has a variance above {ACTIVE:g} over {words}.{unused}",
        value=torch.tensor(active / len(variance) if finite else math.nan, dtype=torch.float64),
        unit="share of coordinates",
        range=(0.0, 1.0),
        failure="" if finite else "a code is not finite",
        curves={"variance of each mean": variance.sort(descending=True).values},
    )


@torch.no_grad()
def linear_gap(subject: Subject) -> Finding:
    r"""Where the decoder is affine: the ELBO is below log p(x) by just KL(q||posterior), IWAE lies between.

    .. math:: -KL(q(z|x) \| p(z|x)) = \text{ELBO} - \log p(x) \le \text{IWAE} - \log p(x) \le 0

    Args:
        subject: A variational autoencoder with a Gaussian decoder.
    """
    core: VAE = core_of(subject.model)
    bent = bends(core)
    premise = Premise(
        "p(x|z) is normal with a mean that is affine in z",
        "refuted" if bent else "proved",
        bent or "decoder.0 is an affine map, and one noise is learned",
    )
    value = stderr = torch.full((3,), math.nan, dtype=torch.float64)
    low, high = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    finite = all(bool(p.isfinite().all()) for p in core.parameters())
    if finite and not bent:
        groups_of_each = -(-PAIRS // (SIZES[-1] * len(seen(subject, GAP_EXAMPLES).weight)))
        (x, _, weight, _), log_w = drawn_weights(subject, SIZES[-1] * groups_of_each)
        exact, lack = _closed_forms(core, x)
        low = -mean_with_error(lack, weight)[0].expand(3)
        high = torch.cat((low[:1], high[1:]))
        # the examples are given: what varies is the draws, so errors are taken over groups of them
        groups = [log_w.unflatten(0, (-1, k)).logsumexp(1) - math.log(k) - exact for k in SIZES]
        share = weight / weight.sum()
        value = torch.stack([(group @ share).mean() for group in groups])
        stderr = torch.stack([(group @ share).std() / math.sqrt(len(group)) for group in groups])
    return Finding(
        statement="Bounds less the exact log-likelihood of held-out examples. The ELBO lacks the divergence "
        f"of the encoder's guess from the posterior, {-float(low[0]):.4g} nats; weighted bounds lack less.",
        value=value,
        unit="nats",
        range=(-math.inf, math.inf),
        kind="estimate",
        stderr=stderr,
        low=low,
        high=high,
        tolerance=0.01 + 0.05 * abs(float(low[0])),
        labels=("ELBO", *(f"IWAE-{k}" for k in SIZES[1:])),
        premises=(premise,),
        failure="" if finite else "the parameters are not finite",
    )


def _closed_forms(core: VAE, x: Tensor) -> tuple[Tensor, Tensor]:
    """The log-likelihood of each row and KL(q(z|x) || p(z|x)), in float64."""
    last: Any = next(m for m in core.decoder.modules() if isinstance(m, nn.Linear))
    likelihood: Any = core.likelihood
    W, b, s = (p.double().cpu() for p in (last.weight, last.bias, likelihood.log_noise.exp()))
    rows = x.flatten(1).double().cpu()
    mean, log_scale = (t.double().cpu() for t in core.posterior(x))
    center, S = posterior(rows, W, b, s)
    guess = MultivariateNormal(mean, scale_tril=torch.diag_embed(log_scale.exp()))
    truth = MultivariateNormal(center, (S + S.T).expand(len(rows), *S.shape) / 2)
    return marginal_log_prob(rows, W, b, s), kl_divergence(guess, truth)


def vae_demo(decoder_hidden: tuple[int, ...] = (8,)) -> Subject:
    """A small VAE as it begins, and forty rows of three features."""
    x = values().splits["train"].inputs[0].float()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = dense_vae(3, code=2, hidden=decoder_hidden)
    return Subject(model=model.eval(), test=(Batch((x,)),), task=CODES, objective=negative_elbo)


def linear_demo() -> Subject:
    """A linear VAE with noise of deviation 1, and rows that it has drawn itself."""
    subject = vae_demo(())
    with torch.no_grad():
        x = core_of(subject.model).sample(40, generator=torch.Generator().manual_seed(0))
    return dataclasses.replace(subject, test=(Batch((x,)),))
