"""What attention promises: convex combinations, scores of low rank, no order without positions, its cost."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.sets.tiny.sequences import corpus
from margin.engine.evaluation import drawn_rows, eval_mode, hooked, in_double
from margin.engine.loop import learn, risk
from margin.nn.attention import SelfAttention, attend
from margin.nn.positions import LearnedPositions, SinusoidalPositions
from margin.nn.preprocessed import core_of
from margin.nn.seq2seq import AligningSeq2Seq
from margin.text.transformers import bert
from margin.text.transformers.masking import (
    MASKED,
    MASKED_SHARE,
    RANDOM_SHARE,
    MaskedPairs,
    asked_of,
    masked_loss,
    masked_pairs,
)

EXAMPLES = 16
"""Held-out examples whose attention is looked at, at most."""

ROUNDING = 1e-9
"""In float64, relative to the largest value."""

SHOWN = 24
"""Tokens of the picture of an attention, at most."""


def attentions(model: nn.Module) -> dict[str, SelfAttention]:
    """The layers of self-attention of a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, SelfAttention)}


def attends(subject: Subject) -> bool:
    """Whether the model has a layer of self-attention of ours, and there are held-out examples."""
    return len(subject.test) > 0 and len(attentions(subject.model)) > 0


def mixes_freely(subject: Subject) -> bool:
    """Whether the model has a layer of self-attention to which the order of places is nothing."""
    layers = attentions(subject.model).values()
    return len(subject.test) > 0 and any(not one.causal and one.positions == "none" for one in layers)


def reads_tokens(subject: Subject) -> bool:
    """Whether the model has attention and its first input is tokens."""
    return attends(subject) and not subject.test[0].inputs[0].is_floating_point()


def _called(model: nn.Module, batches: Sequence[Batch]) -> dict[str, list[tuple[Tensor, Tensor | None]]]:
    """The vectors and the mask that each layer of self-attention is given for some batches."""
    layers = attentions(model)
    found: dict[str, list[tuple[Tensor, Tensor | None]]] = {name: [] for name in layers}
    names = {id(layer): name for name, layer in layers.items()}

    def keep(layer: nn.Module, args: tuple[Any, ...]) -> None:
        found[names[id(layer)]].append((args[0], args[1] if len(args) > 1 else None))

    with hooked(layers.values(), lambda call: None, keep), eval_mode(model):
        for batch in batches:
            model(*(x[:EXAMPLES] for x in batch.inputs))
    return found


def _layer_finding(statement: str, values: dict[str, Tensor], tolerance: float, unit: str) -> Finding:
    return Finding(
        statement=statement,
        value=torch.stack([x.detach().double().cpu() for x in values.values()]),
        unit=unit,
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=tolerance,
        labels=tuple(name.removeprefix("model.") for name in values),
    )


def rank(subject: Subject) -> Finding:
    """The part of each layer's bilinear scores beyond the rank of its queries: of each head, the largest.

    The scores of a head are x W_Q^T W_K x'^T, biases apart, of rank at most the width of a head.

    Args:
        subject: A model with self-attention.
    """
    found = {}
    for name, layer in attentions(in_double(subject.model)).items():
        q, k, _ = layer.queries_keys_values.weight.detach().chunk(3)
        part = q.shape[0] // layer.heads
        products = torch.einsum(
            "hqi,hqj->hij", q.unflatten(0, (layer.heads, -1)), k.unflatten(0, (layer.heads, -1))
        )
        sizes = torch.linalg.svdvals(products)
        beyond = sizes[:, part] if part < sizes.shape[1] else sizes.new_zeros(1)
        found[name] = (beyond / sizes[:, 0].clamp(min=torch.finfo(sizes.dtype).tiny)).amax()
    return _layer_finding(
        "The bilinear scores of a head have no more ranks than its queries have numbers: the first singular "
        "value beyond, in parts of the largest, of the worst head of each layer.",
        found,
        ROUNDING,
        "share of the largest singular value",
    )


@torch.no_grad()
def mixture(subject: Subject) -> Finding:
    """How far a row of weights is from the sum 1, or from 0 where nothing may be read; or below 0.

    Args:
        subject: A model with self-attention; it reads held-out examples.
    """
    model, drawn = in_double(subject.model), drawn_rows(subject.test, EXAMPLES)
    layers, found = attentions(model), {}
    for name, calls in _called(model, drawn.batches).items():
        off = [torch.zeros((), dtype=torch.float64)]
        for x, mask in calls:
            weights = layers[name].weights(x, mask)
            sums = weights.sum(3)
            off.append((sums - (sums > 0.5).to(sums)).abs().amax().cpu())
            off.append((-weights).amax().clamp(min=0).cpu())
        found[name] = torch.stack(off).amax()
    return _layer_finding(
        "Attention mixes values convexly: how far a row of weights is from the sum 1 (0 where no place may "
        f"be read), or a weight below 0, at most in each layer, over {drawn.words()}.",
        found,
        ROUNDING,
        "weight",
    )


@torch.no_grad()
def permutation(subject: Subject, *, seed: int = 2017) -> Finding:
    """How far the attention of places in another order is from the attention in that order.

    Of a causal layer order counts by itself, and so it does of one with rotary positions: they are left out.

    Args:
        subject: A model with self-attention; it reads held-out examples.
        seed: Of the order.
    """
    model, drawn = in_double(subject.model), drawn_rows(subject.test, EXAMPLES)
    layers, found = attentions(model), {}
    for name, calls in _called(model, drawn.batches).items():
        layer = layers[name]
        if layer.causal or layer.positions != "none" or not calls:
            continue
        x = calls[0][0]
        order = torch.randperm(x.shape[1], generator=Generator().manual_seed(seed)).to(x.device)
        one = layer(x)
        found[name] = (layer(x[:, order]) - one[:, order]).abs().amax() / one.abs().amax()
    finding = _layer_finding(
        "Without positions attention knows no order: the attention of places in another order, less the "
        f"attention in that order, in parts of the largest number, over {drawn.words()}.",
        found or {"none": torch.tensor(math.nan)},
        ROUNDING,
        "share of the largest number",
    )
    return finding if found else replace(finding, failure="every layer is causal or has rotary positions")


def placed(subject: Subject) -> bool:
    """Whether the model reads tokens and adds positions to them."""
    kinds = LearnedPositions | SinusoidalPositions
    return reads_tokens(subject) and any(isinstance(m, kinds) for m in subject.model.modules())


class _Nowhere(nn.Module):
    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x


@torch.no_grad()
def positions(subject: Subject) -> Finding:
    """How much the outputs move when the positions are left out, in parts of the outputs.

    Args:
        subject: A model of tokens with positions; it reads held-out examples.
    """
    model, drawn = in_double(subject.model), drawn_rows(subject.test, EXAMPLES)
    without = in_double(subject.model)
    for module in list(without.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LearnedPositions | SinusoidalPositions):
                setattr(module, name, _Nowhere())
    moved = []
    with eval_mode(model), eval_mode(without):
        for batch in drawn.batches:
            inputs = tuple(x[:EXAMPLES] for x in batch.inputs)
            one, other = model(*inputs), without(*inputs)
            known = one.abs() < 1e30  # the lowest number stands where nothing is said
            moved.append(((one - other)[known].norm() / one[known].norm()).cpu())
    share = torch.stack(moved)
    return Finding(
        statement="How far the outputs move where the positions of tokens are left out, in parts of their "
        f"norm, over {drawn.words()}: 0 is a model that does not use them.",
        value=share.mean(),
        unit="share of the outputs' norm",
        range=(0.0, math.inf),
    )


COST = (256, 512)
"""Tokens at which the operations of attention are counted."""


@torch.no_grad()
def cost(subject: Subject) -> Finding:
    """By what the operations of scores and mixing grow with twice as many tokens: 4, being of order T^2 d.

    Args:
        subject: A model with self-attention; the shapes are those of its heads.
    """
    found = {}
    for name, layer in attentions(subject.model).items():
        counts = []
        for time in COST:
            part = layer.output.in_features // layer.heads
            x = torch.empty(1, layer.heads, time, part, device="meta")
            with FlopCounterMode(display=False) as counter:
                attend(x, x, x)
            counts.append(counter.get_total_flops())
        found[name] = torch.tensor(counts[1] / counts[0] if counts[0] else math.nan, dtype=torch.float64)
    return Finding(
        statement="The operations of scores and mixing at twice as many tokens, in parts of those at "
        f"{COST[0]}, of each layer.",
        value=torch.stack(list(found.values())),
        unit="times the operations",
        range=(0.0, math.inf),
        equals=4.0,
        tolerance=ROUNDING,
        labels=tuple(name.removeprefix("model.") for name in found),
    )


@torch.no_grad()
def maps(subject: Subject) -> Finding:
    """Over how many tokens the attention of each layer is spread: the exponential of the entropy of a row.

    Args:
        subject: A model of tokens with self-attention; it reads held-out examples.
    """
    drawn = drawn_rows(subject.test, EXAMPLES)
    layers, values, errors, shown = attentions(subject.model), [], [], torch.zeros(0)
    for name, calls in _called(subject.model, drawn.batches).items():
        spread = []
        for x, mask in calls:
            weights = layers[name].weights(x, mask).double()
            spread.append(torch.special.entr(weights).sum(3).exp().mean((1, 2)).cpu())
            shown = weights[0, :, :SHOWN, :SHOWN].mean(0).cpu()
        each = torch.cat(spread)
        values.append(each.mean())
        errors.append(each.std() / math.sqrt(len(each)) if len(each) > 1 else torch.zeros(()).double())
    # the last layer of an encoder-decoder reads the target
    place = 2 if isinstance(core_of(subject.model), AligningSeq2Seq) else 0
    ids = drawn.batches[0].inputs[place][0, :SHOWN].cpu()
    return Finding(
        statement="Tokens over which a row of attention is spread (the exponential of its entropy), the mean "
        f"of the heads and places of each layer, over {drawn.words()}. The picture is the last layer's mean "
        "over heads of the first text: what may be read, not what decides.",
        value=torch.stack(values),
        stderr=torch.stack(errors),
        kind="estimate",
        unit="tokens",
        range=(0.0, math.inf),
        labels=tuple(name.removeprefix("model.") for name in layers),
        curves={"attention": shown, "tokens": ids},
        remarks=words_of(subject, ids.tolist()),
    )


def words_of(subject: Subject, ids: Sequence[int]) -> tuple[str, ...]:
    """The tokens in writing, where they are known, in one line; ()."""
    words = subject.vocabulary
    if not ids or max(ids) >= len(words):
        return ()
    return ("tokens: " + " ".join(repr(words[k])[1:-1].replace(" ", "\u2423") for k in ids),)


def masks(subject: Subject) -> bool:
    """Whether the held-out examples are texts with hidden tokens."""
    return subject.task.name == MASKED.name and len(subject.test) > 0


def rule(subject: Subject) -> Finding:
    """How the tokens that are asked for are shown: 80 % as [MASK], 10 % as another, 10 % as they are.

    A token drawn at random is now and then the right one: of V tokens .1 / V more are shown as they are.

    Args:
        subject: A masked language model with its held-out examples.
    """
    shown, wanted, every = [], [], 0
    for batch in subject.test:
        if batch.targets is not None:
            asked = asked_of(batch.targets)
            shown.append(batch.inputs[0][asked].cpu())
            wanted.append(batch.targets[asked].cpu())
            every += int((batch.inputs[1] - 3).sum())
    tokens, targets = torch.cat(shown), torch.cat(wanted)
    kept = (tokens == targets).double()
    mask = (
        tokens[tokens != targets].mode().values if bool((tokens != targets).any()) else tokens.new_tensor(-1)
    )
    hidden = (tokens == mask).double() * (1 - kept)
    shares = torch.stack((hidden.mean(), (1 - kept - hidden).mean(), kept.mean()))
    vocab = int(core_of(subject.model).bias.numel())
    promised = torch.tensor(
        [MASKED_SHARE, RANDOM_SHARE * (1 - 1 / vocab), 1 - MASKED_SHARE - RANDOM_SHARE * (1 - 1 / vocab)]
    )
    promised = promised.double()
    stderr = (promised * (1 - promised) / max(len(tokens), 1)).sqrt()
    return Finding(
        statement=f"Of {len(tokens):,} tokens asked for, {len(tokens) / max(every, 1):.1%} of all, 80 % are "
        "shown as [MASK], 10 % as another token and 10 % as they are.",
        value=shares,
        kind="estimate",
        stderr=stderr,
        unit="share of the tokens asked for",
        range=(0.0, 1.0),
        equals=promised,
        tolerance=0.05,
        labels=("as [MASK]", "as another", "as they are"),
    )


def demo() -> Subject:
    """A BERT with drawn weights on six texts of 3 to 7 tokens."""
    g = Generator().manual_seed(0)
    tokens, lengths = torch.randint(11, (6, 7), generator=g), torch.tensor([7, 3, 5, 7, 4, 6])
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = bert.classifier(11, 7, 3, width=8, depth=2, heads=2, places=16)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    batch = Batch((tokens, lengths), torch.arange(6) % 3)
    return Subject(model=model.eval(), test=[batch], task=CLASSES, objective=risk(CLASSES))


def masked_demo() -> Subject:
    """An untrained masked language model and some thousand texts with hidden tokens."""
    data = corpus()
    pairs: MaskedPairs = masked_pairs(data.splits["train"])
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = bert.masked(data.spec["vocab_size"], data.spec["longest"], width=8, depth=1, heads=2)
    g = Generator().manual_seed(0)
    batches = [pairs.take(torch.arange(len(pairs)), g) for _ in range(160)]
    return Subject(model=model.eval(), test=batches, task=MASKED, objective=masked_loss)


def reading_demo() -> Subject:
    """A BERT that has learned which of three tokens stands somewhere in a text of 3 to 9 others."""
    g = Generator().manual_seed(0)
    lengths, kinds = torch.randint(4, 11, (80,), generator=g), torch.randint(3, (80,), generator=g)
    tokens = torch.randint(8, (80, 10), generator=g)
    places = (torch.rand(80, generator=g) * lengths).long()
    tokens[torch.arange(80), places] = 8 + kinds
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = bert.classifier(11, 10, 3, width=16, depth=2, heads=2, places=16)
    train, test = (Batch((tokens[rows], lengths[rows]), kinds[rows]) for rows in (slice(60), slice(60, 80)))
    learn(model, risk(CLASSES), train, steps=80)
    return Subject(model=model.eval(), test=[test], task=CLASSES, objective=risk(CLASSES))
