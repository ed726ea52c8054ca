"""The conditions of Karush (1939), Kuhn and Tucker (1951), which single out the widest separator."""

import torch

from margin.classic.perceptron.claims import signed_examples
from margin.classic.perceptron.max_margin import MaximumMargin, maximum_margin
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import HALFSPACE
from margin.data.examples import InOrder
from margin.data.sets.tiny.tables import sides
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of


def optimality(subject: Subject) -> Finding:
    r"""Whether (w, b) and the multipliers a satisfy the conditions that single out the widest separator.

    Relative to \|w\| and to sum a: w = sum_i a_i y_i x_i; sum_i a_i y_i = 0; y_i (w . x_i + b) >= 1 for all,
    and equal to 1 where a_i > 0. The problem is convex, so they suffice.

    Args:
        subject: A maximum-margin separator with its training examples.
    """
    x, sign = signed_examples(subject)
    core = core_of(subject.model)
    w, b, a = (core.state_dict()[name].double().cpu() for name in ("weight", "bias", "multipliers"))
    solved, matches = bool((a > 0).any()), len(a) == len(x)
    if solved and matches:
        slack = sign * (x @ w + b) - 1
        value = torch.stack(
            (
                ((a * sign) @ x - w).norm() / w.norm(),
                (a @ sign).abs() / a.sum(),
                (-slack).clamp(min=0).max(),
                (a * slack).abs().sum() / a.sum(),
            )
        )
    else:
        value = torch.full((4,), torch.nan, dtype=torch.float64)
    failure = "" if matches else f"it has {len(a)} multipliers for {len(x)} training examples"
    # the weights are kept in the model's type: a score carries the rounding of |w| |x|
    eps = torch.finfo(next(core.parameters()).dtype).eps
    reach = float(w.norm() * x.norm(dim=1).max() + b.abs() + 1)
    return Finding(
        statement="w = sum a y x, sum a y = 0, every example at 1 or beyond, those of a > 0 exactly at 1.",
        value=value,
        unit="1",
        range=(0.0, torch.inf),
        low=torch.zeros(4),
        high=torch.zeros(4),
        tolerance=16 * eps * reach,
        premises=(
            Premise(
                "every multiplier is at least 0",
                "proved" if bool((a >= 0).all()) else "refuted",
                f"the least is {float(a.min()):.3g}",
            ),
        ),
        reference="Karush 1939; Kuhn and Tucker 1951, Theorem 3; Cortes and Vapnik 1995, Appendix A.1",
        failure=failure or ("" if solved else "every multiplier is 0: it is not trained"),
        labels=("w less its sum", "sum of a y", "shortest example", "slack at support vectors"),
    )


@torch.no_grad()
def demo() -> Subject:
    """The widest separator of forty points whose largest margin is 0.2."""
    data = sides()
    batches = InOrder(data.splits["train"], 512)
    model = MaximumMargin(2, 2, len(data.splits["train"]))
    subject = Subject(model=model, test=batches, train=batches, task=HALFSPACE, objective=risk(HALFSPACE))
    found = maximum_margin(*signed_examples(subject))
    model.weight.copy_(found.weight)
    model.bias.copy_(found.bias)
    model.multipliers.copy_(found.multipliers)
    return subject
