"""The text CNN: windows, masks and norm by hand; what order-free models cannot tell apart."""

import pytest
import torch

from margin.text.convolution.text_cnn import (
    MeanVector,
    NgramFilters,
    TextHead,
    bag_classifier,
    classifier,
    regressor,
)

A, B, C = 1, 2, 3


def bigram_detector() -> TextHead:
    """One filter of width 2 that answers 1/2 to (a, b) and 0 to any other pair of tokens."""
    body = NgramFilters(4, embedding=4, filters=1, widths=(2,))
    model = TextHead(body, num_classes=2, max_norm=0.0)
    with torch.no_grad():
        body.embedding.weight.copy_(torch.eye(4))
        body.convolutions[0].weight.zero_()[0, A, 0] = 1.0
        body.convolutions[0].weight[0, B, 1] = 1.0
        body.convolutions[0].bias.fill_(-1.5)
        model.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
        model.head.bias.copy_(torch.tensor([0.25, 0.0]))
    return model.eval()


def all_texts() -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(4)] * 5)


def test_a_filter_of_width_two_solves_contains_the_bigram() -> None:
    tokens = all_texts()
    truth = ((tokens[:, :-1] == A) & (tokens[:, 1:] == B)).any(1)
    assert torch.equal(bigram_detector()(tokens).argmax(1).bool(), truth)


def test_a_bag_of_words_cannot_tell_an_order() -> None:
    torch.manual_seed(0)
    bag = bag_classifier(4, 2).eval()
    yes, no = torch.tensor([[A, B, C]]), torch.tensor([[B, A, C]])
    assert torch.allclose(bag(yes), bag(no), atol=1e-7)
    assert not torch.equal(bigram_detector()(yes).argmax(1), bigram_detector()(no).argmax(1))


@pytest.mark.parametrize("build", [classifier, bag_classifier])
def test_padding_is_never_read(build) -> None:
    torch.manual_seed(0)
    model = build(9, 3).eval()
    lengths = torch.tensor([5, 1, 0, 3])
    tokens = torch.randint(9, (4, 5))
    alone = torch.cat(
        [model(tokens[k : k + 1, :n], lengths[k : k + 1]) for k, n in enumerate(lengths.tolist())]
    )
    wide = torch.cat((tokens, torch.randint(9, (4, 4))), 1)
    for garbage in (tokens, wide):
        assert torch.allclose(model(garbage, lengths), alone, atol=1e-6)
    assert torch.allclose(model(tokens[:1]), alone[:1], atol=1e-6)  # without lengths all is text
    assert torch.equal(alone[2], model.head.bias)


def test_the_answers_are_those_of_every_window() -> None:
    torch.manual_seed(0)
    body = NgramFilters(9, embedding=3, filters=2, widths=(1, 3))
    tokens, lengths = torch.tensor([[4, 7, 2, 8, 0]]), torch.tensor([4])
    for k, convolution, found in zip((1, 3), body.convolutions, body.answers(tokens, lengths), strict=True):
        zeros = torch.zeros(k - 1, 3)
        x = torch.cat((zeros, body.embedding(tokens[0, :4]), zeros))
        for t in range(4 + k - 1):
            answer = (convolution.weight * x[t : t + k].T).sum((1, 2)) + convolution.bias
            assert torch.allclose(found[0, :, t], answer.relu(), atol=1e-6)
        assert (found[0, :, 4 + k - 1 :] == 0).all()
    assert torch.allclose(
        body(tokens, lengths), torch.cat([y.amax(2) for y in body.answers(tokens, lengths)], 1)
    )


def test_the_rows_of_the_map_keep_their_norm() -> None:
    model = classifier(9, 3, max_norm=3.0).eval()
    free = TextHead(model.body, num_classes=3, max_norm=0.0).eval()
    with torch.no_grad():
        model.head.weight[0].fill_(1.0)  # of length sqrt(300)
        model.head.weight[1:].mul_(0.01)
    free.load_state_dict(model.state_dict())
    tokens = torch.randint(9, (5, 6))
    with torch.no_grad():
        ours, whole = model(tokens) - model.head.bias, free(tokens) - model.head.bias
    assert torch.allclose(ours[:, 1:], whole[:, 1:], atol=1e-6)
    assert torch.allclose(ours[:, 0] * 300**0.5, 3 * whole[:, 0], atol=1e-4)


def test_the_mean_vector_is_the_mean() -> None:
    body = MeanVector(9, embedding=4)
    found = body(torch.tensor([[3, 5, 0]]), torch.tensor([2]))
    assert torch.allclose(found[0], body.embedding.weight[[3, 5]].mean(0), atol=1e-7)


def test_values_are_one_number_a_text() -> None:
    assert regressor(9, filters=2)(torch.randint(9, (5, 6))).shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": ()}, "every width must be at least 1"),
        ({"widths": (0,)}, "every width must be at least 1"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"max_norm": -1.0}, "max_norm at least 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(9, 3, **options)
