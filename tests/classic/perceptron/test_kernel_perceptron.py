"""The kernel perceptron: the primal run at degree 1, whole counts in the span, kernels, XOR, refusals."""

from pathlib import Path

import pytest
import torch
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import margin
from margin.classic.perceptron.kernel_perceptron import (
    KernelPerceptron,
    dual_mistake_rule,
    dual_mistakes_of_pass,
)
from margin.classic.perceptron.model import mistakes_of_pass
from margin.classic.perceptron.separation import xor
from margin.core.types import Batch
from margin.data.sets.tiny.tables import moons
from margin.engine.loop import State


def holding(x: torch.Tensor, **options: object) -> KernelPerceptron:
    model = KernelPerceptron(x.shape[1], 2, len(x), **options).to(x.dtype)
    model.examples.copy_(x)
    return model


def test_at_degree_1_the_dual_run_is_the_primal_run() -> None:
    # integers: both sums are exact, so ties at 0 are ties in both
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-3, 4, (150, 3), generator=generator).double()
    sign = 2.0 * torch.randint(0, 2, (150,), generator=generator).double() - 1
    model = holding(x, degree=1)
    w, b = torch.zeros(3).double(), torch.zeros(()).double()
    counts = torch.zeros(150).double()
    for _ in range(6):
        made = dual_mistakes_of_pass(model, sign)
        assert made.tolist() == mistakes_of_pass(w, b, x, sign).tolist()
        counts[made] += 1
        # w = sum alpha_i y_i x_i with alpha_i the number of mistakes made at example i
        assert torch.equal(model.coefficients, counts * sign)
        assert torch.equal(model.coefficients @ x, w)
        assert float(model.coefficients.sum()) == float(b)
    assert counts.max() > 1


def test_with_more_features_than_examples_the_weights_stay_in_the_span() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(10, 40, generator=generator, dtype=torch.float64)
    sign = 2.0 * (torch.arange(10) % 2).double() - 1
    w, b = torch.zeros(40).double(), torch.zeros(()).double()
    for _ in range(20):
        mistakes_of_pass(w, b, x, sign)
        basis = torch.linalg.qr(x.T).Q
        assert (w - basis @ (basis.T @ w)).norm() < 1e-10
    assert w.any()


def test_the_kernels_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(2)
    x, z = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (7, 5))
    polynomial = holding(z, degree=3, offset=0.5).gram(x, z)
    gaussian = holding(z, kernel="gaussian", width=2.0).gram(x, z)
    assert torch.allclose(polynomial, torch.tensor(polynomial_kernel(x, z, degree=3, gamma=1.0, coef0=0.5)))
    assert torch.allclose(gaussian, torch.tensor(rbf_kernel(x, z, gamma=1 / 8)))


@pytest.mark.parametrize("options", [{"degree": 2}, {"kernel": "gaussian"}])
def test_a_kernel_separates_xor_where_degree_1_does_not(options: dict) -> None:
    x, sign = xor()
    model, line = holding(x, **options), holding(x, degree=1)
    for _ in range(100):
        made, missed = dual_mistakes_of_pass(model, sign), dual_mistakes_of_pass(line, sign)
        assert len(missed) > 0
    assert len(made) == 0
    assert torch.equal(model(x).sign(), sign)


def test_a_pass_in_blocks_is_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sign = 2.0 * (torch.arange(40) % 2).double() - 1
    whole, blocks = holding(x), holding(x)
    for _ in range(2):
        dual_mistakes_of_pass(whole, sign)
    monkeypatch.setattr("margin.classic.perceptron.kernel_perceptron.MOST_PAIRS", 100)
    for _ in range(2):
        dual_mistakes_of_pass(blocks, sign)
    assert torch.equal(whole.coefficients, blocks.coefficients)


def test_weights_scale_the_counts_and_0_leaves_an_example_out() -> None:
    x = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [0.0, -1.0]])
    model = KernelPerceptron(2, 2, 3)
    made = dual_mistake_rule()(
        State({"model": model}), Batch((x,), torch.tensor([1, 1, 0]), torch.tensor([3.0, 0.0, 1.0]))
    )
    assert model.coefficients.tolist() == [3.0, 0.0, -1.0]
    assert float(made["mistakes"]) == 2
    assert model.examples.isfinite().all()


def test_a_part_of_the_examples_is_refused() -> None:
    step, state = dual_mistake_rule(), State({"model": KernelPerceptron(2, 2, 5)})
    with pytest.raises(ValueError, match=r"takes all examples: got 3 of 5; leave batch_size at all"):
        step(state, Batch((torch.ones(3, 2),), torch.tensor([0, 1, 1])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 0}, "degree >= 1, offset >= 0 and width > 0: got degree=0"),
        ({"offset": -1.0}, "got degree=2, offset=-1.0"),
        ({"width": 0.0}, "width=0.0"),
        ({"width": float("nan")}, "width=nan"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelPerceptron(2, 2, 5, **options)


def test_a_pass_over_examples_that_have_changed_is_refused(tmp_path: Path) -> None:
    """A coefficient counts the mistakes at an example: at another one it would mean nothing."""
    with pytest.raises(ValueError, match="each pass must see as it was: leave out augment"):
        margin.train(
            "kernel_perceptron",
            moons(),
            training=margin.Training(max_steps=3, augment=["noise:0.5"], until={}),
            out=tmp_path / "run",
        )


def test_three_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two classes: got num_classes=3"):
        KernelPerceptron(2, 3, 5)


def test_from_outside_the_span_the_weights_stay_outside() -> None:
    """Many notes leave out the condition on w_0: what of it is orthogonal to the examples stays for ever."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(10, 40, generator=generator, dtype=torch.float64)
    start = torch.randn(40, generator=generator, dtype=torch.float64)
    sign = 2.0 * (torch.arange(10) % 2).double() - 1
    basis = torch.linalg.qr(x.T).Q
    outside = start - basis @ (basis.T @ start)
    w, made = start.clone(), 0
    for _ in range(20):
        made += len(mistakes_of_pass(w, None, x, sign))
        assert (w - basis @ (basis.T @ w) - outside).norm() < 1e-10
    assert made > 0
    assert outside.norm() > 1
