"""The kernel perceptron (Aizerman, Braverman and Rozonoer 1964): the mistake rule in its dual form."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from margin.classic.perceptron.model import rows_of, visit
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

Kernel = Literal["polynomial", "gaussian"]

MOST_PAIRS = 2**22
"""Values of the kernel that are held at a time."""


class KernelPerceptron(nn.Module):
    r"""The signed score sum_i c_i k(x_i, x), c_i being y_i times the mistakes made at training example x_i.

    The weights of the mistake rule stay in the span of the examples, so it can be run on the c_i alone, with
    any positive definite k as inner product. k(x, x') = x . x' + 1 gives the perceptron with a bias.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_classes: Must be 2: class 1 is the positive side.
        num_examples: Number of training examples, which the model keeps.
        kernel: polynomial, (x . x' + offset)^degree, or gaussian, exp(-\|x - x'\|^2 / (2 width^2)).
        degree: Degree of the polynomial, at least 1; 1 is the perceptron itself.
        offset: Its offset, at least 0.
        width: Width of the Gaussian, in the unit of the (standardized) features, above 0.

    Raises:
        ValueError: There are not two classes, or an option is out of range.

    Reference:
        Aizerman, Braverman and Rozonoer 1964; Freund and Schapire 1999, Section 3 (kernels).
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        num_examples: int,
        *,
        kernel: Kernel = "polynomial",
        degree: int = 2,
        offset: float = 1.0,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        if num_classes != 2:
            raise ValueError(f"a perceptron separates two classes: got num_classes={num_classes}")
        if kernel not in get_args(Kernel):
            raise ValueError(f"kernel must be one of {', '.join(get_args(Kernel))}: got {kernel!r}")
        if degree < 1 or not offset >= 0 or not width > 0:
            got = f"degree={degree}, offset={offset}, width={width}"
            raise ValueError(f"a kernel needs degree >= 1, offset >= 0 and width > 0: got {got}")
        self.kernel, self.degree, self.offset, self.width = kernel, degree, offset, width
        self.examples: Tensor
        self.coefficients: Tensor
        self.register_buffer("examples", torch.zeros(num_examples, in_features))
        self.register_buffer("coefficients", torch.zeros(num_examples))

    def gram(
        self, x: Float[Tensor, "rows features"], z: Float[Tensor, "others features"]
    ) -> Float[Tensor, "rows others"]:
        """k(x, z) of every pair."""
        if self.kernel == "polynomial":
            return (x @ z.T + self.offset) ** self.degree
        return (
            torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")
            .square()
            .div(-2 * self.width**2)
            .exp()
        )

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The signed score of each row; its sign is the side."""
        return self.gram(x.flatten(1), self.examples) @ self.coefficients


def dual_mistakes_of_pass(model: KernelPerceptron, sign: Float[Tensor, " rows"]) -> Int[Tensor, " mistakes"]:
    """One pass of the rule in the order of the model's own examples, moving its coefficients in place.

    At each example with y sum_i c_i k(x_i, x) <= 0, a point on the boundary included, its c <- c + y. The
    scores of the examples to come are kept, so a mistake costs one column of the kernel matrix.

    Args:
        model: Holds the examples.
        sign: The side y of each, or the signed size of its step; an example of 0 is left out.

    Returns:
        The places of the mistakes, in order.
    """
    x = model.examples
    blocks = x.split(max(1, MOST_PAIRS // len(x)))
    score, y = torch.cat([model(block) for block in blocks]).cpu().numpy(), sign.cpu().numpy()

    def wrong(start: int, stop: int) -> NDArray[np.bool_]:
        mistake: NDArray[np.bool_] = (score[start:stop] * y[start:stop] <= 0) & (y[start:stop] != 0)
        return mistake

    def move(row: int) -> None:
        model.coefficients[row] += sign[row]
        column = model.gram(x[row:], x[row : row + 1])[:, 0]
        score[row:] += y[row] * column.cpu().numpy()

    return torch.tensor(visit(len(x), wrong, move), dtype=torch.long)


def dual_mistake_rule() -> Step:
    """One pass of the mistake rule in its dual form over all training examples, in their order.

    An example's weight scales its step; one of weight 0 is left out.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        model: Any = state.core
        if len(batch.inputs[0]) != len(model.examples):
            raise ValueError(
                "a coefficient belongs to an example by its place, so a step takes all examples: "
                f"got {len(batch.inputs[0])} of {len(model.examples)}; leave batch_size at all"
            )
        rows, sign = rows_of(state, batch), torch.zeros_like(model.coefficients)
        if state.step and not torch.equal(model.examples[rows.places], rows.x):
            raise ValueError(
                "a coefficient belongs to an example, which each pass must see as it was: leave out --augment"
            )
        sign[rows.places] = rows.sign
        model.examples[rows.places] = rows.x
        return {"mistakes": float(len(dual_mistakes_of_pass(model, sign)))}

    return step
