"""Transfer of attacks: what was made against one model, put to another (Szegedy et al. 2014, Section 4.2)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.tasks import Task
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.robust.attacks.gradient import Search, labels_of, margin_loss, missed, moved_input, pgd
from margin.robust.attacks.threat_models import Threat


class Transfer(NamedTuple):
    """Shares of the examples that a target had right and then has wrong.

    Args:
        rates: Attacks made against each source, put to each target.
        noise: Random displacements of the same norm, put to each target.
    """

    rates: Float[Tensor, "sources targets"]
    noise: Float[Tensor, " targets"]


# Six parameters, as every attack has: the models, what is attacked, how far, how.
def transfer(
    models: Sequence[nn.Module],
    batch: Batch,
    task: Task,
    threat: Threat,
    generator: Generator,
    *,
    search: Search | None = None,
) -> Transfer:
    """The success of attacks made against each model on each of them, beside noise of the same size.

    Each attack is projected ascent on the margin loss, whose best point counts also where the source held.
    The noise goes as far: a random corner of the cube, or a random point of the sphere.

    Args:
        models: Classifiers of the same inputs and classes; asked in evaluation mode.
        batch: One real input with its labels.
        task: How outputs are read.
        threat: The ball and the domain.
        generator: Draws starting points and noise.
        search: Steps and restarts; None takes :class:`Search`'s defaults.

    Raises:
        ValueError: There is no model, or a model has no example right.
        NonFiniteError: A loss is NaN or a gradient is not finite.

    Reference: Szegedy et al. (2014), "Intriguing properties of neural networks", Section 4.2 and Table 2.
    """
    if not models:
        raise ValueError("a transfer needs at least one model: got none")
    x, labels, lost = moved_input(batch), labels_of(batch), missed(task)
    loss = margin_loss(task)
    made = [pgd(model, batch, loss, threat, generator, search=search).inputs for model in models]
    gaussian = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
    made.append(threat.project(threat.advanced(x, gaussian, threat.eps), x))
    columns = []
    for number, model in enumerate(models):
        with eval_mode(model), torch.no_grad():
            right = ~lost(model(x), labels)
            if not bool(right.any()):
                raise ValueError(f"a transfer needs examples that a model has right: model {number} has none")
            columns.append([lost(model(y), labels)[right].double().mean() for y in made])
    found = torch.tensor(columns, dtype=torch.float64).T
    return Transfer(found[:-1], found[-1])
