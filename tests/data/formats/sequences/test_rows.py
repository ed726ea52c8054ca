"""Rows of several lengths: one gather gives what a loop over rows gives, and nothing depends on padding."""

import pytest
import torch
from torch import Generator, Tensor

from margin.data.formats.sequences.rows import (
    Ragged,
    Sequences,
    TokenSequences,
    evaluation_batch,
    fingerprint_of,
)

LENGTHS = (3, 0, 5, 1, 0, 2)


def rows(width: int = 2) -> list[Tensor]:
    # No value is 0, so that a 0 can only be padding
    steps = iter(range(1, 100))
    return [torch.tensor([[float(next(steps))] * width for _ in range(t)]).reshape(t, width) for t in LENGTHS]


def by_loop(chosen: list[Tensor], width: int = 2) -> Tensor:
    padded = torch.zeros(len(chosen), max(map(len, chosen)), width)
    for i, row in enumerate(chosen):
        padded[i, : len(row)] = row
    return padded


@pytest.mark.parametrize(
    "index", [[0, 1, 2, 3, 4, 5], [5, 4], [2], [1, 1, 0], [4, 3, 3], [0, 5, 2, 1]], ids=str
)
def test_a_batch_is_what_a_loop_over_rows_pads(index: list[int]) -> None:
    x, lengths = Ragged.of(rows()).padded(torch.tensor(index))
    assert torch.equal(x, by_loop([rows()[i] for i in index]))
    assert lengths.tolist() == [LENGTHS[i] for i in index]


@pytest.mark.parametrize("index", [[1], [1, 4]], ids=str)
def test_empty_rows_alone_have_no_step(index: list[int]) -> None:
    x, lengths = Ragged.of(rows()).padded(torch.tensor(index))
    assert x.shape == (len(index), 0, 2)
    assert lengths.tolist() == [0] * len(index)


def test_rows_without_any_step_are_padded() -> None:
    x, lengths = Ragged.of([torch.zeros(0, 3), torch.zeros(0, 3)]).padded(torch.tensor([1, 0]))
    assert x.shape == (2, 0, 3)
    assert lengths.tolist() == [0, 0]


def test_a_nan_in_one_row_stays_out_of_the_others_padding() -> None:
    given = [torch.full((2, 1), torch.nan), torch.ones(1, 1), torch.ones(3, 1)]
    x, _ = Ragged.of(given).padded(torch.tensor([1, 2]))
    assert x[..., 0].tolist() == [[1, 0, 0], [1, 1, 1]]


def test_a_choice_of_rows_keeps_their_steps() -> None:
    chosen = Ragged.of(rows()).rows(torch.tensor([2, 1, 0]))
    assert chosen.lengths.tolist() == [5, 0, 3]
    assert torch.equal(chosen.steps, torch.cat((rows()[2], rows()[0])))


@pytest.mark.parametrize("offsets", [[0, 2], [1, 3], [0, 2, 1, 3], []], ids=str)
def test_offsets_that_do_not_cut_the_steps_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets must rise from 0 to the number of steps, 3"):
        Ragged(torch.ones(3, 1), torch.tensor(offsets, dtype=torch.int64))


def test_a_sequence_of_one_length_has_one_input_and_of_several_two() -> None:
    square = Ragged(torch.arange(12.0).reshape(6, 2), torch.tensor([0, 3, 6]))
    index = torch.tensor([1])
    one = Sequences(square, torch.tensor([7, 8]), 3).take(index, Generator())
    assert len(one.inputs) == 1
    assert one.inputs[0].tolist() == [[[6, 7], [8, 9], [10, 11]]]
    assert one.targets is not None and one.targets.tolist() == [8]
    two = Sequences(square, torch.tensor([7, 8])).take(index, Generator())
    assert [x.tolist() for x in two.inputs] == [one.inputs[0].tolist(), [3]]


def test_lengths_are_told_where_they_may_differ() -> None:
    assert Sequences(Ragged.of(rows()), torch.arange(6)).lengths.tolist() == list(LENGTHS)
    assert Sequences(Ragged(torch.ones(6, 1), torch.tensor([0, 3, 6])), torch.arange(2), 3).lengths is None


def test_a_part_is_the_examples_chosen() -> None:
    part = Sequences(Ragged.of(rows()), torch.arange(6)).part(torch.tensor([5, 2]))
    assert part.targets.tolist() == [5, 2]
    assert torch.equal(part.take(torch.tensor([0]), Generator()).inputs[0][0], rows()[5])


def test_sequences_that_do_not_fit_are_refused() -> None:
    square = Ragged(torch.ones(6, 1), torch.tensor([0, 2, 6]))
    with pytest.raises(ValueError, match=r"every sequence must have 3 steps: got 2 \.\. 4"):
        Sequences(square, torch.arange(2), 3)
    with pytest.raises(ValueError, match="got 2 sequences, 3 targets"):
        Sequences(square, torch.arange(3))


def test_a_target_counts_0_at_padding_and_what_is_said_elsewhere() -> None:
    ends = torch.tensor([0, 3, 4])
    tokens = Ragged(torch.tensor([5, 6, 7, 8]), ends)
    answers = Ragged(torch.tensor([6, 7, 9, 9]), ends)
    plain = TokenSequences(tokens, answers).take(torch.tensor([1, 0]), Generator())
    assert [x.tolist() for x in plain.inputs] == [[[8, 0, 0], [5, 6, 7]], [1, 3]]
    assert plain.targets.tolist() == [[9, 0, 0], [6, 7, 9]]
    assert plain.weight.tolist() == [[1, 0, 0], [1, 1, 1]]
    counted = TokenSequences(tokens, answers, Ragged(torch.tensor([0.0, 2.0, 1.0, 3.0]), ends))
    assert counted.take(torch.tensor([1, 0]), Generator()).weight.tolist() == [[3, 0, 0], [0, 2, 1]]
    assert counted.targets.tolist() == [[6, 7, 9], [9, 0, 0]]


def test_targets_of_other_lengths_are_refused() -> None:
    tokens = Ragged(torch.tensor([5, 6, 7]), torch.tensor([0, 1, 3]))
    answers = Ragged(torch.tensor([5, 6, 7]), torch.tensor([0, 2, 3]))
    with pytest.raises(ValueError, match="lengths of the tokens"):
        TokenSequences(tokens, answers)


def test_the_same_steps_cut_otherwise_are_other_data() -> None:
    steps = torch.ones(4, 1)
    one, two = (Sequences(Ragged(steps, torch.tensor([0, cut, 4]))) for cut in (1, 3))
    assert fingerprint_of({"train": one}) != fingerprint_of({"train": two})
    same = Sequences(Ragged(steps.clone(), torch.tensor([0, 1, 4])))
    assert fingerprint_of({"train": one}) == fingerprint_of({"train": same})
    assert fingerprint_of({"train": one}) != fingerprint_of({"test": one})


@pytest.mark.parametrize(("longest", "size"), [(0, 512), (256, 512), (257, 510), (2**17, 1), (2**20, 1)])
def test_an_evaluation_takes_fewer_of_long_sequences(longest: int, size: int) -> None:
    assert evaluation_batch(longest) == size
