"""What a code keeps and what its coordinates do: reconstructions beside the originals, traversals, a map."""

import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CODES
from margin.core.types import Batch
from margin.data.sets.tiny.tables import values
from margin.engine.evaluation import eval_mode, sample_examples
from margin.generative.autoencoder.model import Autoencoder, dense_autoencoder, restoration_error
from margin.generative.autoencoder.vae import VAE
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
    """The share of the inputs' variance that is lost on the way through the code, beside PCA's.

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
        reference="Hinton and Salakhutdinov 2006, Figure 2; Eckart and Young 1936, Section 3",
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
        premises=(),
        reference="Kingma and Welling 2014, Figure 4; Higgins et al. 2017, Figure 1",
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


def bent_demo() -> Subject:
    """The same with a hidden layer, which promises nothing."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = dense_autoencoder(3, code=2, hidden=(8,))
    return dataclasses.replace(demo(), model=model.eval())
