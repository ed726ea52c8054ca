"""The trace of a matrix from products with random signs.

Hutchinson (1990): for independent signs z, E[z' A z] = tr A, with variance 2 (|A|_F^2 - sum of A_ii^2) for
symmetric A: the trace of a diagonal matrix comes out exactly.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor


def hutchinson_trace(
    matvec: Callable[[Tensor], Tensor],
    dim: int,
    generator: Generator,
    *,
    probes: int = 20,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, " probes"]]:
    r"""An unbiased estimate of a trace, :math:`\frac1m \sum_i z_i^\top A z_i`, with z_i of random signs.

    Args:
        matvec: Product with the square matrix.
        dim: Its order.
        generator: Source of the signs, on the CPU.
        probes: m, at least 2.
        dtype: Of the vectors; sums are float64.
        device: Of the vectors.

    Returns:
        The estimate, its standard error, and the m quadratic forms.

    Raises:
        ValueError: There are fewer than two probes.

    Reference: Hutchinson 1990, Proposition 1; Avron and Toledo 2011, Lemma 1 (the variance).
    """
    if probes < 2:
        raise ValueError(f"a standard error needs two probes: got {probes}")
    forms = torch.empty(probes, dtype=torch.float64)
    for i in range(probes):
        signs = torch.randint(2, (dim,), generator=generator, dtype=torch.int8)
        z = (2 * signs - 1).to(device, dtype)
        forms[i] = (z * matvec(z)).sum(dtype=torch.float64)
    return forms.mean(), forms.std() / math.sqrt(probes), forms
