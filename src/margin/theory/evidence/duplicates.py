"""Duplicates: rows of the data that are equal, or far nearer than the data's own distances would let them be.

An error over held-out examples takes them for independent draws that the training did not see. A held-out row
that stands in the training part breaks it, unless its equal is a draw of its own: three features that are 0
or 1 repeat in any two samples. What is counted is therefore compared with chance.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, has_labels, has_real_input
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.math.seeds import mix
from margin.math.two_samples.distances import CHUNK, distances
from margin.theory.evidence.rows import (
    MOST,
    drawn,
    flat,
    has_rows,
    kept_data,
    listed,
    numbered,
    places,
    whole_inputs,
)

LEAK = 0.01
"""Share of the held-out rows, beyond chance, from which on copies in the training part are no trifle."""

REPEATED = 0.1
"""Share of held-out rows that are copies of other held-out rows, from which on errors are 5 % too narrow."""

DEVIATIONS = 4.0
"""Standard deviations above what a random split gives that are not put down to chance."""

PARTLY = 0.01
"""Pairs of rows that agree in one half of their features alone, for each equal pair: fewer are no chance."""

KINDS = 3
"""Rows for each different one, beyond which rows are of few kinds."""

RISK = 0.002
"""Chance of naming any near duplicate at all in data without one."""

TAIL = 0.1
"""Share of the training rows by which the law of those that lie nearest to another is told."""

APART = 10.0
"""Distances of median and lower quartile, beyond which a training row is a copy of another itself."""

LEAST_ROWS = 20
"""Different training rows without which it is not."""

NEIGHBORS = 1_000_000_000
"""Multiplications of a search for nearest rows at most, of which there are four."""


class Overlap(NamedTuple):
    """Equal rows of both parts.

    Args:
        held_out: The number of held-out rows.
        train: The number of training rows.
        leaked: The held-out rows whose inputs a training row has too, by their place in the file.
        twins: A training row with the same inputs, for each.
        expected: How many a random split of all rows would give by chance.
        deviation: The standard deviation of that number.
        repeated: The held-out rows that repeat an earlier one.
        repeated_train: How many training rows do.
        contradicting: Rows of both parts whose inputs stand beside another label elsewhere.
        by_chance: Whether equal rows come by chance in such data.
    """

    held_out: int
    train: int
    leaked: Int[Tensor, " leaked"]
    twins: Int[Tensor, " leaked"]
    expected: float
    deviation: float
    repeated: Int[Tensor, " repeated"]
    repeated_train: int
    contradicting: int
    by_chance: bool

    @property
    def leak(self) -> str:
        """Which held-out rows the training saw, beyond chance; "" where hardly any."""
        count, rows = len(self.leaked), self.held_out
        excess, deviation = (count - self.expected, self.deviation) if self.by_chance else (count, 0.0)
        if count and excess >= LEAK * rows and excess > DEVIATIONS * deviation:
            return f"{count:,} of {rows:,} held-out rows stand in the training part"
        return ""

    @property
    def repetition(self) -> str:
        """Which held-out rows are copies of each other; "" where hardly any."""
        if not self.by_chance and len(self.repeated) >= max(REPEATED * self.held_out, 2):
            return f"{len(self.repeated):,} of {self.held_out:,} held-out rows repeat another held-out row"
        return ""


def overlap(subject: Subject) -> Overlap:
    r"""The equal rows of a subject's data, and whether such data repeat by chance; computed once.

    A random split deals the rows of each set of m equal ones to the parts. With h the share that is held out,
    a set has X held-out rows of which all have a twin in training unless X = m: on average
    :math:`m h (1 - h^{m-1})`. What is found is beyond that where it exceeds the sum over all sets by four
    standard deviations: a copied row is always in both parts, a repeated one in both only by luck.

    A random split of a file that holds its records twice passes this. So equal rows are put down to chance
    only where rows that agree in a random half of their features, and not in the other, are at least one in
    a hundred of the equal ones, for either half: where values are coarse (iris, in tenths of a centimeter;
    three binary features) or mostly 0, agreement comes by parts; a copy agrees in all or nothing. Chance is
    not ruled out either where the rows are of few kinds, less than one for every three rows, or fill a whole
    grid, as those of one feature always do. It is ruled out, whatever the features, where rows repeat more
    evenly than draws of any distribution do (:func:`evenness`), as those of a file written four times.

    Args:
        subject: Its batches have rows.
    """
    return kept_data(subject, "overlap", lambda: _overlap(subject))


def _overlap(subject: Subject) -> Overlap:
    ((test, train),) = numbered(subject, whole_inputs)
    index, index_train = places(subject.test), places(subject.train)
    rows = max((int(part.max()) + 1 for part in (test, train) if len(part)), default=0)
    own, theirs = (part.bincount(minlength=rows) for part in (test, train))
    leaks = theirs[test] > 0
    twin = torch.zeros(rows, dtype=torch.int64)
    twin[train.flip(0)] = index_train.flip(0)  # the first of several
    expected, deviation = _random_split(own + theirs, len(test), len(train))
    again = _again(test)
    enough = int(leaks.sum()) + int(again.sum()) >= LEAK * len(test)
    return Overlap(
        held_out=len(test),
        train=len(train),
        leaked=index[leaks],
        twins=twin[test[leaks]],
        expected=expected,
        deviation=deviation,
        repeated=index[again],
        repeated_train=int(_again(train).sum()),
        contradicting=_contradicting(subject, torch.cat((test, train))),
        by_chance=enough and _by_chance(subject, own + theirs),
    )


def _again(rows: Int[Tensor, " rows"]) -> Tensor:
    """Whether each number stood before."""
    order = rows.argsort(stable=True)
    ranked = rows[order]
    again = torch.zeros(len(rows), dtype=torch.bool)
    again[order[1:]] = ranked[1:] == ranked[:-1]
    return again


def _random_split(sizes: Tensor, held_out: int, train: int) -> tuple[float, float]:
    """How many held-out rows have a twin in training where sets of these sizes are dealt out at random."""
    h = held_out / max(1, held_out + train)
    kinds, count = sizes[sizes > 1].unique(return_counts=True)
    mean = variance = 0.0
    for m, times in zip(kinds.tolist(), count.tolist(), strict=True):
        # of X ~ Binomial(m, h), less m where X = m
        first = m * h - m * h**m
        second = m * h * (1 - h) + (m * h) ** 2 - m**2 * h**m
        mean += times * first
        variance += times * max(second - first**2, 0.0)
    return mean, math.sqrt(variance)


def _contradicting(subject: Subject, inputs: Tensor) -> int:
    if not has_labels(subject):
        return 0
    ((test, train),) = numbered(subject, lambda batch: () if batch.targets is None else (batch.targets,))
    targets = torch.cat((test, train))
    if len(targets) != len(inputs):
        return 0
    pairs = torch.stack((inputs, targets)).unique(dim=1)
    labels = pairs[0].bincount()
    return int((labels[inputs] > 1).sum())


def _pairs(sizes: Tensor) -> int:
    return int((sizes * (sizes - 1)).sum()) // 2


def _by_chance(subject: Subject, sizes: Tensor) -> bool:
    """Whether rows that agree in one half of their features alone are not far rarer than equal rows."""
    width, kinds = sum(x[:1].numel() for x in subject.test[0].inputs), int((sizes > 0).sum())
    if width < 2 or _is_whole_grid(subject, kinds):
        return True
    if evenness(sizes[sizes > 0]) > DEVIATIONS:
        return False
    if KINDS * kinds < int(sizes.sum()):
        return True
    for other in (False, True):
        agreeing = torch.cat(numbered(subject, partial(_half, other=other))[0]).bincount()
        if _pairs(agreeing) - _pairs(sizes) < PARTLY * _pairs(sizes):
            return False
    return True


def evenness(sizes: Int[Tensor, " kinds"]) -> float:
    r"""By how many standard deviations rows repeat more evenly than independent draws of any distribution.

    Of draws in a random number the count of each kind is a Poisson variable, of mean :math:`\lambda_i`, and
    its factorial moments are the powers of the mean. By the inequality of Cauchy and Schwarz, with
    :math:`F_r` the expectation of the sum of :math:`m (m - 1) \ldots (m - r + 1)` over all kinds,

    .. math:: F_2^2 = (\sum \lambda_i^2)^2 \le \sum \lambda_i \sum \lambda_i^3 = F_1 F_3,

    with equality where all kinds are as likely. At that edge, with c = F_2 / F_1, the standard deviation of
    :math:`F_3 - F_2^2 / F_1` is :math:`\sqrt{F_1 (2 c^3 + 6 c^2)}`. So 100 rows that each occur four times
    are 5.8 deviations too even; 1,000 of which 30 occur twice and none thrice, .76.

    Args:
        sizes: How often each different row occurs.

    Reference: Good 1953 (what the counts of counts tell of unknown frequencies).
    """
    m = sizes.double()
    F1, F2, F3 = (float(x.sum()) for x in (m, m * (m - 1), m * (m - 1) * (m - 2)))
    if not F2:
        return 0.0
    c = F2 / F1
    return (F2 * c - F3) / math.sqrt(F1 * (2 * c**3 + 6 * c**2))


def _is_whole_grid(subject: Subject, kinds: int) -> bool:
    """Whether the different rows are all combinations of what each feature holds, as a design's are."""
    batches = [batch for part in (subject.test, subject.train) for batch in part]
    cells = 1
    for k, first in enumerate(batches[0].inputs):
        rows = [flat(batch.inputs[k]) for batch in batches]
        if len({x.shape[1] for x in rows}) > 1:  # padded batch by batch: no place is one feature
            return False
        for feature in range(first[:1].numel()):
            cells *= len(torch.cat([x[:, feature] for x in rows]).unique())
            if cells > kinds:
                return False
    return True


def _half(batch: Batch, other: bool) -> list[Tensor]:
    """A random half of the features, or the other one: batches that were padded may be of several widths."""
    features = torch.cat([flat(x).double() for x in batch.inputs], 1)
    width = features.shape[1]
    chosen = torch.randperm(width, generator=Generator().manual_seed(mix(0, 17))) < width // 2
    return [features[:, ~chosen if other else chosen]]


def unseen_draws(subject: Subject) -> str:
    """Why the held-out examples are no independent draws that the training did not see, or ""."""
    if not has_rows(subject):
        return ""
    found = overlap(subject)
    return found.leak or ("" if subject.groups else found.repetition)  # groups are draws whatever they hold


class Near(NamedTuple):
    """Held-out rows that lie far nearer to a training row than the data's distances let expect.

    Args:
        rows: Their places in the sample.
        looked: How many held-out rows were looked at.
        among: Among how many training rows.
    """

    rows: Int[Tensor, " near"]
    looked: int
    among: int


def near_duplicates(
    x: Float[Tensor, "n dim"],
    train: Float[Tensor, "m dim"],
    *,
    view: Callable[[Tensor], Tensor] = lambda rows: rows,
    most: int = MOST,
) -> Near:
    r"""Rows that lie far nearer to a training row than either lies to any other, by the training's own law.

    .. math:: t = \log \frac{\min(d(x, b'),\, d(b, a'))}{d(x, b)}

    with b the nearest training row, b' the second nearest, and a' the training row that is nearest to b. What
    t is without a copy is seen on the training rows themselves, each taken out in turn: in the dense places
    of the data and in the thin ones, in as many dimensions as there are. Beyond its upper tenth t falls off
    exponentially, at the rate of the median or the mean excess, whichever is slower. A row is named where
    less than :data:`RISK` in all would be so near by chance, nearer than any training row is to another but
    for copies among these (fewer than half of them), and at less than half the distance. Rows that have an
    equal in training are not among them; a row that is in training several times counts there once.

    Args:
        x: Rows, in the unit in which distances are meant.
        train: Where their neighbors are looked for.
        view: What of rows is compared.
        most: Rows of either sample that are looked at: the first of x, of training some drawn at random.

    Reference: Facco, d'Errico, Rodriguez and Laio 2017, Equation 3 (ratios of distances to two neighbors);
        Coles 2001, Section 4.2 (the tail of what exceeds a threshold).
    """
    rows = train.unique(dim=0)
    looked, nothing = x[:most], torch.zeros(0, dtype=torch.int64)
    if len(rows) < LEAST_ROWS:
        return Near(nothing, len(looked), len(train))
    seen = view(rows)
    drawn_at = torch.randperm(len(rows), generator=Generator().manual_seed(mix(0, 19)))[:most]
    usual, _ = _nearness(seen[drawn_at], seen, drawn_at)
    least = _unusual(usual[usual.isfinite()], len(looked))
    nearness, nearest = _nearness(view(looked), seen)
    named = (nearness > least) & (looked != rows[nearest]).any(1)
    return Near(named.nonzero().flatten(), len(looked), len(train))


def _unusual(usual: Float[Tensor, " m"], count: int) -> float:
    """From which nearness on a row is named, of so many that are looked at; infinity where none can be."""
    if len(usual) < LEAST_ROWS:
        return math.inf
    lower, half = usual.quantile(torch.tensor([0.25, 0.5], dtype=usual.dtype)).tolist()
    usual = usual[usual <= half + APART * (half - lower)]  # without the training's own copies
    tail = float(usual.quantile(1 - TAIL))
    beyond = usual[usual > tail] - tail
    # on an exact grid none is nearer than others: then the rate of points on a line, the least there is
    decline = 1.0
    if len(beyond) >= 2:
        decline = min(math.log(2) / float(beyond.median()), 1 / float(beyond.mean()))
    return max(tail + math.log(TAIL * count / RISK) / decline, float(usual.max()), math.log(2))


def _nearness(
    x: Float[Tensor, "n dim"], train: Float[Tensor, "m dim"], own: Int[Tensor, " n"] | None = None
) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
    """The nearness t of each row, and its nearest training row: of one at ``own`` of these, another."""
    first, at = _two_nearest(x, train, own)
    back, whose = _two_nearest(train[at[:, 0]], train, at[:, 0])
    itself = torch.zeros(len(x), dtype=torch.bool) if own is None else whose[:, 0] == own
    back_to = torch.where(itself, back[:, 1], back[:, 0])
    return (torch.minimum(first[:, 1], back_to) / first[:, 0]).log(), at[:, 0]


def _two_nearest(
    x: Float[Tensor, "n dim"], train: Float[Tensor, "m dim"], own: Int[Tensor, " n"] | None
) -> tuple[Float[Tensor, "n 2"], Int[Tensor, "n 2"]]:
    found = []
    for part in torch.arange(len(x)).split(max(1, min(CHUNK // len(train), CHUNK // 4))):
        apart = distances(x[part], train)
        if own is not None:
            apart[torch.arange(len(part)), own[part]] = math.inf
        found.append(apart.topk(2, largest=False))
    return torch.cat([two.values for two in found]), torch.cat([two.indices for two in found])


def pictures(images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n channels height width"]:
    """Images of mean 0 and norm 1: neither light nor contrast changes them."""
    centered = images - images.mean((1, 2, 3), keepdim=True)
    sizes = centered.square().sum((1, 2, 3), keepdim=True).sqrt()
    return centered / sizes.clamp_min(1e-300)


def spectra(images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n dim"]:
    """What neither a shift, nor light or contrast changes of an image: the moduli of its Fourier transform.

    A shift is cyclic here: what it moves out of the image and in changes them a little.
    """
    return torch.fft.fft2(pictures(images), norm="ortho").abs().flatten(1)


def _of_images(x: Tensor, *, shape: torch.Size, view: Callable[[Tensor], Tensor]) -> Tensor:
    return view(x.reshape(-1, *shape)).flatten(1)


def _near(subject: Subject) -> Near | None:
    if not (has_real_input(subject) and len(subject.train)):
        return None
    parts = drawn(subject)
    test, train = (part.inputs for part in parts)
    if not bool(train.isfinite().all() and test.isfinite().all()):
        return None
    most = max(20, NEIGHBORS // max(1, train.numel()))
    shape = parts[0].shape
    if len(shape) == 3:
        alike, moved = (
            near_duplicates(test, train, view=partial(_of_images, shape=shape, view=view), most=most)
            for view in (pictures, spectra)
        )
        return alike._replace(rows=torch.cat((alike.rows, moved.rows)).unique())
    scale = train.std(0, correction=0) if len(shape) == 1 else train.std(correction=0)
    scale = torch.where(scale > 0, scale, 1.0)
    return near_duplicates(test / scale, train / scale, most=most)


def duplicates(subject: Subject) -> Finding:
    """How many rows stand in both parts, and twice in one; equal and near ones.

    Args:
        subject: A model whose held-out examples have rows; the training's are looked at where they are known.
    """
    found, near = overlap(subject), _near(subject)
    labeled = {"held-out rows that repeat another held-out row": len(found.repeated)}
    if len(subject.train):
        labeled = {"held-out rows that stand in the training part": len(found.leaked)} | labeled
        labeled["training rows that repeat another training row"] = found.repeated_train
    if has_labels(subject):
        labeled["rows whose equals have another label"] = found.contradicting
    if near is not None:
        labeled["held-out rows nearly equal to a training row"] = len(near.rows)
    among = f" and {found.train:,} training rows" if len(subject.train) else ""
    return Finding(
        statement=f"Equal rows among {found.held_out:,} held-out rows{among}.",
        value=torch.tensor(list(labeled.values()), dtype=torch.float64),
        unit="rows",
        range=(0.0, float(found.held_out + found.train)),
        labels=tuple(labeled),
        remarks=tuple(_remarks(subject, found, near)),
    )


def _remarks(subject: Subject, found: Overlap, near: Near | None) -> list[str]:
    remarks = []
    if len(found.leaked):
        pairs = zip(found.leaked.tolist(), found.twins.tolist(), strict=True)
        named = listed([f"{own} (training row {twin})" for own, twin in pairs])
        remarks.append(f"Held-out rows that stand in the training part, counted from 0: {named}.")
        if found.by_chance:
            remarks.append(
                f"Rows of such data repeat by chance: a random split of them would give {found.expected:.3g} "
                f"+- {found.deviation:.2g} such rows."
            )
    if len(found.repeated):
        remarks.append(f"Held-out rows that repeat another one: {listed(found.repeated.tolist())}.")
    if near is not None and len(near.rows):
        whole = near.looked == found.held_out
        named = f": {listed(places(subject.test)[near.rows].tolist())}" if whole else ""
        remarks.append(
            f"Of {near.looked:,} held-out rows and {near.among:,} training rows that were looked at, "
            f"{len(near.rows):,} lie far nearer to a training row than training rows lie to each other: "
            f"they may be copies that were edited{named}."
        )
    if reason := unseen_draws(subject):
        remarks.append(f"Every error over held-out examples is unfounded: {reason}.")
    return remarks


def leak(copies: int = 31, held_out: int = 200, train: int = 600, seed: int = 0) -> Subject:
    """A subject of normal rows of which the first held-out ones are training rows."""
    generator = Generator().manual_seed(seed)
    x = torch.randn(held_out + train, 5, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(len(x), generator=generator, dtype=torch.float64) > 0).long()
    x[:copies], y[:copies] = x[held_out : held_out + copies], y[held_out : held_out + copies]
    model = nn.Linear(5, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2, 5))
        model.bias.zero_()
    parts = [[Batch((x[part],), y[part])] for part in (slice(held_out), slice(held_out, None))]
    return Subject(model=model, test=parts[0], train=parts[1], task=CLASSES, objective=risk(CLASSES))


def demo() -> Subject:
    """31 of 200 held-out rows stand in the training part."""
    return leak()
