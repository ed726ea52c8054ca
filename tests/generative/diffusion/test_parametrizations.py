"""What a network predicts: three names of one thing, back and forth, and where one of them says nothing."""

import math
from typing import get_args

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.diffusion.process import (
    Parametrization,
    check_terminal,
    cosine_schedule,
    linear_schedule,
    target,
    to_eps,
    to_x0,
    zero_terminal,
)

KINDS = get_args(Parametrization)


def case(shape: tuple[int, ...] = (5, 3), seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(seed)
    x0, eps = torch.randn(2, *shape, generator=g, dtype=torch.float64)
    level = 0.02 + 0.96 * torch.rand(shape[0], generator=g, dtype=torch.float64)
    by_row = level.reshape(-1, *(1,) * (len(shape) - 1))
    return x0, eps, level, by_row.sqrt() * x0 + (1 - by_row).sqrt() * eps


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 3), (4, 1, 3, 2)])
def test_the_right_answer_gives_data_and_noise_back(kind: Parametrization, shape: tuple[int, ...]) -> None:
    x0, eps, level, x_t = case(shape)
    answer = target(x0, eps, level, kind)
    torch.testing.assert_close(to_x0(answer, x_t, level, kind), x0, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(to_eps(answer, x_t, level, kind), eps, rtol=1e-11, atol=1e-11)


def test_the_velocity_is_the_derivative_by_the_angle() -> None:
    """x = cos(phi) x0 + sin(phi) eps, v = dx / dphi (Salimans and Ho 2022, Appendix D), by differences."""
    x0, eps, _, _ = case()
    phi, h = 0.7, 1e-5

    def at(p: float) -> Tensor:
        return math.cos(p) * x0 + math.sin(p) * eps

    level = torch.tensor(math.cos(phi) ** 2, dtype=torch.float64)
    v = target(x0, eps, level, "v")
    torch.testing.assert_close(v, (at(phi + h) - at(phi - h)) / (2 * h), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_any_answer_means_one_thing_whatever_it_is_called(
    kind: Parametrization, other: Parametrization
) -> None:
    """Also of a wrong answer: data and noise that it implies add up to x_t."""
    _, _, level, x_t = case()
    answer = torch.randn(5, 3, generator=Generator().manual_seed(7), dtype=torch.float64)
    x0, eps = to_x0(answer, x_t, level, kind), to_eps(answer, x_t, level, kind)
    torch.testing.assert_close(level.sqrt()[:, None] * x0 + (1 - level).sqrt()[:, None] * eps, x_t)
    again = target(x0, eps, level, other)
    torch.testing.assert_close(to_x0(again, x_t, level, other), x0, rtol=1e-9, atol=1e-9)


def test_one_level_serves_all_rows_and_types_follow_the_points() -> None:
    x0, eps, _, _ = case()
    level = torch.tensor(0.3, dtype=torch.float64)
    one = target(x0, eps, level, "v")
    torch.testing.assert_close(one, target(x0, eps, level.expand(5), "v"))
    assert target(x0.float(), eps.float(), level, "v").dtype == torch.float32


def test_noise_says_nothing_of_the_data_where_none_are_left() -> None:
    x0, eps, _, _ = case()
    none, all_ = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    with pytest.raises(ValueError, match='only where alpha_bar is above 0; predict "v" or "x0"'):
        to_x0(eps, eps, none, "eps")
    with pytest.raises(ValueError, match="only where there is some: got alpha_bar = 1"):
        to_eps(x0, x0, all_, "x0")
    torch.testing.assert_close(to_x0(-x0, eps, none, "v"), x0)  # v = -x0 there
    torch.testing.assert_close(to_eps(-x0, eps, none, "v"), eps)
    torch.testing.assert_close(to_eps(x0, eps, none, "x0"), eps)


def test_an_end_without_data_is_refused_with_noise_alone() -> None:
    ended = zero_terminal(linear_schedule(10))
    with pytest.raises(ValueError, match=r"ends with alpha_bar = 0$"):
        check_terminal(ended, "eps")
    check_terminal(ended, "v")
    check_terminal(ended, "x0")
    check_terminal(linear_schedule(1), "eps")
    check_terminal(cosine_schedule(1000), "eps")
