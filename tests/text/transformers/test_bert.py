"""BERT's heads: what they read of the encoder's vectors, by their formulas, with padding and segments."""

import pytest
import torch
from torch import Generator

from margin.text.transformers import bert

SMALL = {"width": 8, "depth": 1, "heads": 2, "places": 9}


def built(build, *sizes: int) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build(13, 7, *sizes, **SMALL)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


@pytest.fixture
def given() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(13, (3, 7), generator=Generator().manual_seed(0))
    segments = (torch.arange(7) >= torch.tensor([[3], [2], [1]])).long()
    return tokens, torch.tensor([7, 5, 2]), segments


@pytest.mark.parametrize("pool", ["first", "mean"])
@torch.no_grad()
def test_a_text_is_read_at_its_first_token_or_by_the_mean_of_its_own(given, pool) -> None:
    """W tanh(V z + c) + b: neither the last token, nor padding, nor without tanh."""
    for build, sizes in ((bert.classifier, (4,)), (bert.regressor, ())):
        model = built(build, *sizes)
        model.pool = pool
        z = model.body(*given)
        read = torch.stack(
            [row[0] if pool == "first" else row[:n].mean(0) for row, n in zip(z, given[1], strict=True)]
        )
        wanted = torch.tanh(read @ model.pooler.weight.T + model.pooler.bias) @ model.head.weight.T
        wanted = wanted + model.head.bias
        torch.testing.assert_close(model(*given), wanted if sizes else wanted[:, 0])


@torch.no_grad()
def test_no_answer_begins_or_ends_in_the_question_or_in_padding(given) -> None:
    model = built(bert.reader)
    tokens, lengths, segments = given
    logits, lowest = model(*given).mT, torch.finfo(torch.float64).min
    free = model.body(*given) @ model.head.weight.T + model.head.bias
    inside = (segments == 1) & (torch.arange(7) < lengths[:, None])
    torch.testing.assert_close(logits[inside], free[inside])
    assert bool((logits[~inside] == lowest).all()) and inside.sum() == 4 + 3 + 1
    whole = torch.arange(7) < lengths[:, None]
    alone = model(tokens, lengths).mT  # of one segment all of the text may be the answer
    assert bool((alone[~whole] == lowest).all()) and bool((alone[whole] > lowest).all())


def test_as_many_positions_as_the_longest_text_are_enough() -> None:
    assert bert.Bert(13, 9, **SMALL).places == 9
    with pytest.raises(ValueError, match="no longer than the 9 positions: the longest has 10 tokens"):
        bert.Bert(13, 10, **SMALL)


def by_hand(model, row: list[int], question: int, stride: int) -> torch.Tensor:
    """The vectors of one text, window by window: a token's where the nearer end is farthest."""
    room, own = model.places, row[question:]
    found: list[tuple[int, torch.Tensor]] = [(-1, torch.zeros(0))] * len(row)
    heads, begin = [], 0
    while True:
        part = own[begin : begin + room - question]
        segments = [0] * question + [1] * len(part) if question > 1 else [0] * (question + len(part))
        z = model(torch.tensor([row[:question] + part]), None, torch.tensor([segments]))[0]
        heads.append(z[:question])
        for k in range(len(part)):
            nearer = min(k, len(part) - 1 - k)
            if nearer > found[question + begin + k][0]:
                found[question + begin + k] = nearer, z[question + k]
        if begin + room - question >= len(own):
            break
        begin += stride
    return torch.cat((torch.stack(heads).mean(0), torch.stack([z for _, z in found[question:]])))


@pytest.mark.parametrize("stride", [1, 3, 5])
@torch.no_grad()
def test_longer_texts_are_read_in_windows(stride) -> None:
    """Neither the first nor the last window of a token, and the question before each."""
    model = built(bert.tagger, 4)
    model.body.stride = stride
    lengths, questions = [23, 9, 10, 16, 4], [4, 3, 2, 1, 2]
    tokens = torch.randint(13, (5, 23), generator=Generator().manual_seed(0))
    place = torch.arange(23)
    segments = torch.stack(
        [(place >= q) * (place < n) for q, n in zip(questions, lengths, strict=True)]
    ).long()
    segments[3] = 0  # a text of one segment: its first token begins each window
    z = model.body(tokens, torch.tensor(lengths), segments)
    for k, (n, question) in enumerate(zip(lengths, questions, strict=True)):
        wanted = by_hand(model.body, tokens[k, :n].tolist(), question, stride)
        torch.testing.assert_close(z[k, :n], wanted, msg=f"text {k}")
    alone = model.body(tokens[:1])
    torch.testing.assert_close(alone[0], by_hand(model.body, tokens[0].tolist(), 1, stride))


def test_windows_are_asked_for_and_leave_no_token_out() -> None:
    model = built(bert.classifier, 4)
    tokens = torch.zeros(1, 10, dtype=torch.int64)
    with pytest.raises(ValueError, match="no longer than the 9 positions: got 10 tokens"):
        model(tokens)
    with pytest.raises(ValueError, match=r"windows by --model.stride 4"):
        bert.Bert(13, 10, **SMALL)
    with pytest.raises(ValueError, match="less than the 9 places: got 9"):
        bert.Bert(13, 10, stride=9, **SMALL)
    model.body.stride = 6
    loss = model(tokens.repeat(2, 1)).sum()
    loss.backward()
    assert model.body.positions.weight.grad.isfinite().all()
    with pytest.raises(ValueError, match="at most the 5 places beside a question of 4 tokens: got 6"):
        model(tokens, None, (torch.arange(10) >= 4).long()[None])
