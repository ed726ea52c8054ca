"""Windows along one axis: against torch over a grid of arguments, and receptive fields that are known."""

from itertools import pairwise, product

import pytest
import torch
import torch.nn.functional as F

from margin.nn.windows import Window, output_size, receptive_field

GRID = list(product((5, 7, 8), (1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2)))


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), GRID)
def test_output_size_is_torchs(size: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    window, x, w = Window(kernel, stride, dilation), torch.zeros(1, 1, size), torch.zeros(1, 1, kernel)
    if window.span > size + 2 * padding:
        with pytest.raises(ValueError, match=f"it spans {window.span}, of {size}"):
            output_size(size, window, padding=padding)
        return
    y = F.conv1d(x, w, stride=stride, padding=padding, dilation=dilation)
    assert output_size(size, window, padding=padding) == y.shape[2]


def test_valid_and_same_and_the_example_of_seven_to_three() -> None:
    for p in (1, 2, 3):
        assert output_size(20, Window(2 * p + 1)) == 20 - 2 * p
        assert output_size(20, Window(2 * p + 1), padding=p) == 20
    assert output_size(7, Window(3, 2)) == output_size(7, Window(5)) == 3
    assert output_size(7, Window(3)) == 5  # not 3: a stride or a larger kernel is needed


@pytest.mark.parametrize("window", [Window(0), Window(3, 0), Window(3, 1, 0)])
def test_a_window_needs_positive_numbers(window: Window) -> None:
    with pytest.raises(ValueError, match="kernel, stride and dilation >= 1"):
        output_size(9, window)


def test_receptive_fields_that_are_known() -> None:
    assert receptive_field([Window(3)] * 2) == 5
    assert receptive_field([Window(3)] * 3) == 7
    assert receptive_field(Window(2, dilation=2**i) for i in range(10)) == 1024
    assert receptive_field([]) == 1
    # a stride widens what comes after it, not itself; a pooling of 2 and a convolution of 5 behind it
    assert receptive_field([Window(5), Window(2, 2), Window(5)]) == 5 + 1 + 4 * 2
    assert receptive_field([Window(3, 2), Window(3, 2, 2), Window(3)]) == 1 + 2 + 4 * 2 + 2 * 4


def test_the_field_is_linear_in_a_dilation_and_exponential_in_depth() -> None:
    fields = [receptive_field([Window(3), Window(3, dilation=d)]) for d in (1, 2, 3, 4)]
    assert {b - a for a, b in pairwise(fields)} == {2}
    deep = [receptive_field(Window(3, dilation=2**i) for i in range(depth)) for depth in (1, 2, 3, 4)]
    assert deep == [2 ** (depth + 1) - 1 for depth in (1, 2, 3, 4)]


def test_two_small_kernels_see_as_far_as_a_large_one_for_less() -> None:
    channels = 10
    weights = {k: k * k * channels**2 for k in (3, 5, 7)}
    assert receptive_field([Window(3)] * 2) == receptive_field([Window(5)]) and 2 * weights[3] < weights[5]
    assert 2 * weights[3] == 18 * channels**2 and 3 * weights[3] == 27 * channels**2
    assert receptive_field([Window(3)] * 3) == receptive_field([Window(7)]) and 3 * weights[3] < weights[7]
