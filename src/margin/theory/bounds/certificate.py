r"""The risk certificate of a posterior over weights: how often its networks err on new examples, at most.

.. math:: R \le \mathrm{kl}^{-1}\Big(\hat r, \tfrac{\mathrm{KL} + \ln(2 \sqrt n / \delta)}{n}\Big)

on the n rows that the prior has not seen, where r-hat bounds the mean error there from m networks that are
drawn (Langford and Caruana 2002; Perez-Ortiz et al. 2021, Section 6.1; by their spread, Maurer and Pontil
2009). Each is drawn for a batch of its own, so that all m are independent.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.catalog import find, rules
from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES, Task
from margin.core.types import Batch, Examples
from margin.data.examples import Arrays, InOrder, Rows
from margin.engine.checkpoints import fill, read_module
from margin.engine.evaluation import eval_mode
from margin.engine.loop import State, risk
from margin.engine.runs import Run
from margin.math.seeds import mix
from margin.nn.preprocessed import device_of, dtype_of
from margin.theory.bounds.pac_bayes import averaged_risk, check_sample, drawn_bound, pac_bayes_kl
from margin.theory.bounds.posterior import (
    KEPT,
    PURPOSE,
    Posterior,
    flat,
    labels_of,
    other_rows,
    put_flat,
    trained,
)
from margin.theory.prediction.held_out import independent_draws
from margin.theory.prediction.risk import share_interval

ROWS = 128
"""Rows for which a network is drawn."""

OF_DRAWS = 0.2
"""The share of delta that is for the drawing of networks."""


class Certificate(NamedTuple):
    """What :func:`certified` found.

    Args:
        bound: Of the share of new examples that a network drawn anew for each gets wrong.
        risk: That share of the rows of the bound, estimated.
        kl: Of the posterior from the prior, in nats.
        rows: n.
        draws: m, or as many equal draws as they are worth.
        delta: The probability that the bound fails.
    """

    bound: float
    risk: float
    kl: float
    rows: int
    draws: float
    delta: float

    def metrics(self) -> dict[str, float]:
        """By the names that a run keeps."""
        return {f"certificate_{name}" if name != "bound" else "certificate": float(value)
                for name, value in self._asdict().items()}  # fmt: skip


def certified(
    errors: Float[Tensor, " draws"], sizes: Float[Tensor, " draws"], kl: float, n: int, delta: float
) -> Certificate:
    """The certificate, from the share of errors of each drawn network on its batch.

    Args:
        errors: In [0, 1].
        sizes: Rows of the batch of each, of whose errors the mean is taken.
        kl: Of the posterior from the prior, in nats.
        n: Rows of the bound, of which all batches together are so many copies.
        delta: Probability that it fails, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Perez-Ortiz et al. 2021, Equation 13; of the drawing see
    :func:`margin.theory.bounds.pac_bayes.averaged_risk`.
    """
    check_sample(n, delta)
    of_draws = OF_DRAWS * delta
    above = averaged_risk(errors, n, of_draws, sizes=sizes)
    bound = float(pac_bayes_kl(above, kl, n, delta - of_draws))
    mean = float(errors.double() @ sizes.double() / sizes.double().sum())
    return Certificate(bound, mean, kl, n, float(sizes.sum() / sizes.max()), delta)


def certificate(
    examples: Examples, task: Task, *, delta: float = 0.05, draws: int = 10_000
) -> Callable[[State], dict[str, float]]:
    """What a training by ``pac_bayes`` tells at its end: the certificate and what it is made of.

    Args:
        examples: The training part.
        task: How outputs are read as classes.
        delta: Probability that it fails.
        draws: Networks that are drawn at least.
    """

    def conclude(state: State) -> dict[str, float]:
        posterior = state.modules.get(KEPT)
        if KEPT in state.waiting:  # interrupted while this was computed: no step has asked for the law since
            rows = state.waiting[KEPT]["prior_rows"]
            posterior = state.kept(KEPT, lambda: Posterior(flat(trained(state.model)), 1.0, rows))
        if not isinstance(posterior, Posterior):
            return {}  # it ended before there was one
        free = other_rows(len(examples), posterior.get_buffer("prior_rows"))
        model = state.model
        batches = InOrder(Rows(examples, free), ROWS, dtype=dtype_of(model), device=device_of(model))
        generator = Generator().manual_seed(mix(state.seed, PURPOSE, 2))
        passes = math.ceil(draws / len(batches))
        found = drawn_errors(model, posterior, batches, task, generator, passes)
        wrong, sizes = (torch.tensor(column, dtype=torch.float64) for column in zip(*found, strict=True))
        return certified(wrong / sizes, sizes, posterior.kl(), len(free), delta).metrics()

    return conclude


@contextmanager
def drawing(model: nn.Module, posterior: Posterior, generator: Generator) -> Iterator[Callable[[], None]]:
    """While the context is open a call gives the model, in evaluation, weights drawn from the law."""
    parameters = trained(model)
    before = flat(parameters)
    with eval_mode(model), torch.no_grad():
        try:
            yield lambda: put_flat(parameters, posterior.draw(generator)[0])
        finally:
            put_flat(parameters, before)


def drawn_errors(
    model: nn.Module,
    posterior: Posterior,
    batches: Sequence[Batch],
    task: Task,
    generator: Generator,
    passes: int,
) -> list[tuple[int, int]]:
    """The errors of a network that is drawn for each batch and each pass, and the rows of the batch."""
    found = []
    with drawing(model, posterior, generator) as draw:
        for batch in batches:
            labels = labels_of(batch)
            for _ in range(passes):
                draw()
                found.append((int(wrong_of(model, batch, labels, task).sum()), len(labels)))
    return found


def wrong_of(model: nn.Module, batch: Batch, labels: Tensor, task: Task) -> Tensor:
    """Which examples are answered wrongly; a score that is no number is wrong."""
    return task.scores["accuracy"](model(*batch.inputs), labels) != 1


NETWORKS = 32
"""Networks by whose errors on the held-out examples the certificate is judged."""

SEED = 2021

VACUOUS = 1e-3
"""A certificate so near to 1 promises nothing."""


def held_out_risk(subject: Subject, *, networks: int = NETWORKS) -> Finding:
    """How often networks drawn from a law over weights err on held-out examples, below its certificate.

    Args:
        subject: A model trained by ``pac_bayes``, with the law and its record.
        networks: How many are drawn, at least 2.
    """
    posterior, record = subject.certified or (None, {})
    if not isinstance(posterior, Posterior) or "certificate" not in record:
        raise NotAsked("the training ended before there was a certificate")
    generator = Generator().manual_seed(SEED)
    shares = errors_by_example(subject.model, posterior, subject.test, subject.task, generator, networks)
    value = shares.mean()
    # of the examples exactly, as if each were answered once; of the networks by their spread
    spread = float(shares.mean(1).std() / math.sqrt(networks))
    low, high = share_interval(value, shares.shape[1], level=1 - 1e-4)
    near, far = share_interval(value, shares.shape[1])
    bound = 1.0 if record["certificate"] > 1 - VACUOUS else record["certificate"]
    return Finding(
        statement="The share of held-out examples that networks drawn from the law over the weights answer "
        f"wrongly lies below its certificate, which fails with probability {record['certificate_delta']:g}.",
        value=value,
        range=(0.0, 1.0),
        kind="estimate",
        interval=((low - 4 * spread).clamp(min=0), (high + 4 * spread).clamp(max=1)),
        printed=((near - 2 * spread).clamp(min=0), (far + 2 * spread).clamp(max=1)),
        high=torch.tensor(bound, dtype=torch.float64),
        scope="probability",
        premises=(independent_draws(subject), *premises_of(subject, posterior, record)),
        remarks=(sentence_of(record), *size_for(subject, record)),
    )


def drawn_once(subject: Subject, delta: float) -> float | None:
    """The bound of one network that is drawn from the law once, by a seed that was fixed; None without a law.

    It says of a single deterministic network what the certificate says of networks drawn anew: the divergence
    gives way to the logarithm of the density ratio at the network that was drawn.

    Args:
        subject: A model, with a law over its weights and its training rows or without.
        delta: Probability that it fails, over the rows and the draw.

    Reference: Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor 2020, Theorem 1 (i).
    """
    posterior, record = subject.certified or (None, {})
    if not isinstance(posterior, Posterior) or "certificate" not in record or not len(subject.train):
        return None
    weights = posterior.draw(Generator().manual_seed(SEED))[0]
    drawn = Generator().manual_seed(SEED)  # the same network
    wrong = errors_by_example(subject.model, posterior, subject.train, subject.task, drawn, 1)[0]
    free = other_rows(len(wrong), posterior.get_buffer("prior_rows"))
    if len(free) != int(record["certificate_rows"]):
        return None  # the training rows at hand are not those of the record
    return float(drawn_bound(wrong[free].mean(), posterior.log_ratio(weights), len(free), delta))


def premises_of(
    subject: Subject, posterior: Posterior, record: Mapping[str, float]
) -> tuple[Premise, Premise, Premise]:
    """Whether the prior's rows are not those of the bound, and prior and law are those of the record."""
    seen, count = posterior.get_buffer("prior_rows"), sum(len(batch.inputs[0]) for batch in subject.train)
    n, kl = int(record["certificate_rows"]), posterior.kl()
    apart = len(seen.unique()) == len(seen) and (not count or count - len(seen) == n)
    same = math.isclose(kl, record["certificate_kl"], rel_tol=1e-6, abs_tol=1e-9)
    return (
        Premise(
            "the prior has seen no row of the bound",
            "proved" if apart else "refuted",
            f"by the record {len(seen):,} rows chose the prior, and the bound is of the {n:,} others"
            if apart
            else f"of {count:,} training rows the prior has {len(seen):,}, the bound {n:,} by the record",
        ),
        Premise(
            "the certificate is that of the law which is kept",
            "proved" if same else "refuted",
            f"its divergence from the prior is {kl:.6g} nats, the record says {record['certificate_kl']:.6g}",
        ),
        Premise(
            "the prior and how inputs are read were fixed without the rows of the bound",
            "assumed",
            "options tried on the same rows before, or categories found in them, cannot be seen from here",
        ),
    )


def sentence_of(record: Mapping[str, float]) -> str:
    """What a reader may quote."""
    return (
        f"At most {record['certificate']:.1%} of new examples are answered wrongly by a network drawn anew "
        f"for each, with {1 - record['certificate_delta']:.4g} confidence; the weights that predict are the "
        "law's mean, of which the certificate does not speak."
    )


def size_for(subject: Subject, record: Mapping[str, float]) -> tuple[str, ...]:
    """Of a certificate that a constant answer would meet, how many rows it would take at this divergence."""
    labels = torch.cat([labels_of(batch).cpu() for batch in subject.test])
    constant = 1 - float(torch.bincount(labels).max()) / len(labels)
    found, kl, delta = (record[f"certificate_{name}"] for name in ("risk", "kl", "delta"))
    if record["certificate"] < constant:
        return ()
    no_more = f"It says no more than a constant answer, which errs on {constant:.1%}"
    if found >= constant:
        return (f"{no_more}: the networks themselves are no better.",)
    n = int(record["certificate_rows"])
    while float(pac_bayes_kl(found, kl, n, delta)) >= constant:
        n *= 2
    return (f"{no_more}: about {n:,} rows would.",)


def errors_by_example(
    model: nn.Module,
    posterior: Posterior,
    batches: Sequence[Batch],
    task: Task,
    generator: Generator,
    networks: int,
) -> Float[Tensor, "networks examples"]:
    """Which examples each of some networks answers wrongly, the same networks for all."""
    rows = []
    with drawing(model, posterior, generator) as draw:
        for _ in range(networks):
            draw()
            found = [wrong_of(model, batch, labels_of(batch), task) for batch in batches]
            rows.append(torch.cat(found).double().cpu())
    return torch.stack(rows)


def posterior_of_run(run: Run, model: nn.Module) -> tuple[Posterior, Mapping[str, float]] | None:
    """The law over the weights that a run has learned, and what it recorded; None where it has none.

    Args:
        run: The training.
        model: Its module.
    """
    rule = run.record["arguments"]["rule"]
    if not rule or find(rules(), rule, "rule").name != "theory/pac_bayes":
        return None
    tensors = read_module(run.checkpoint("last"), KEPT)
    if "prior_rows" not in tensors:
        return None  # it ended before there was one
    posterior = Posterior(flat(trained(model)), 1.0, tensors["prior_rows"])
    fill(posterior, tensors, str(run.path))
    return posterior, run.metrics if run.evaluated else {}


def demo() -> Subject:
    """A linear classifier of 60 points, each weight with a law about its own, and a certificate by hand."""
    x = torch.linspace(-2, 2, 60).unsqueeze(1)
    labels = (x[:, 0] > 0.1).long()
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-3.0], [3.0]]))
        model.bias.zero_()
    prior = torch.tensor([-2.9, 2.9, 0.05, -0.05])  # which less data chose
    posterior = Posterior(prior, 0.1, torch.arange(40))
    posterior.start(flat(trained(model)))
    found = certified(torch.full((400,), 0.03), torch.ones(400), posterior.kl(), 60, 0.05)
    return Subject(
        model=model,
        test=[Batch((x,), labels)],
        train=InOrder(Arrays((x.repeat(2, 1)[:100],), labels.repeat(2)[:100]), 50),
        task=CLASSES,
        objective=risk(CLASSES),
        certified=(posterior, found.metrics()),
    )
