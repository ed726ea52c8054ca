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
    logits, lowest = model(*given), torch.finfo(torch.float64).min
    free = model.body(*given) @ model.head.weight.T + model.head.bias
    inside = (segments == 1) & (torch.arange(7) < lengths[:, None])
    torch.testing.assert_close(logits[inside], free[inside])
    assert bool((logits[~inside] == lowest).all()) and inside.sum() == 4 + 3 + 1
    whole = torch.arange(7) < lengths[:, None]
    alone = model(tokens, lengths)  # of one segment all of the text may be the answer
    assert bool((alone[~whole] == lowest).all()) and bool((alone[whole] > lowest).all())


def test_as_many_positions_as_the_longest_text_are_enough() -> None:
    assert bert.Bert(13, 9, **SMALL).places == 9
    with pytest.raises(ValueError, match="no longer than the 9 positions: the longest has 10 tokens"):
        bert.Bert(13, 10, **SMALL)
