"""ELMo: which words a state depends on, its mixture, words that no vocabulary has."""

import pytest
import torch
from torch import Generator

from margin.core.types import Batch
from margin.nn.decoding import sampled
from margin.text.embeddings.elmo import ELMo, Mix, both_directions, spelled
from margin.text.embeddings.elmo_heads import Classifier, LanguageModel

WORDS = ("the", "a", "fox", "unaffable", "né", "x" * 80)


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(ELMo(WORDS, width=8, filters=4, characters=4), len(WORDS)).double().eval()


def test_the_forward_state_does_not_see_the_future_nor_the_backward_one_the_past(model) -> None:
    x = torch.randn(1, 7, 8, dtype=torch.float64, requires_grad=True)
    for depth, layer in enumerate(model.elmo.both(x)):
        for side, (first, last) in (("ahead", (0, 3)), ("back", (3, 6))):
            part = layer[0, 3, :8] if side == "ahead" else layer[0, 3, 8:]
            (grad,) = torch.autograd.grad(part.sum(), x, retain_graph=True)
            seen = (grad[0].abs().sum(1) > 0).nonzero()[:, 0].tolist()
            assert seen == ([3] if depth == 0 else list(range(first, last + 1)))


def test_padding_plays_no_part(model) -> None:
    tokens = torch.tensor([[0, 2, 3, 1, 4], [4, 1, 2, 0, 0]])
    lengths = torch.tensor([5, 3])
    together, alone = model.elmo.both(model.elmo.embedded(tokens), lengths), None
    alone = model.elmo.both(model.elmo.embedded(tokens[1:, :3]))
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one[1, :3], other[0])
        assert not one[1, 3:].any()
    torch.testing.assert_close(model(tokens, lengths)[1, :3], model(tokens[1:, :3])[0])


def test_the_objective_is_the_mean_of_both_log_likelihoods(model) -> None:
    """Word by word: forward p(w_t | w_<t), backward p(w_t | w_>t), each from a prefix of its own."""
    whole = torch.tensor([[0, 2, 3, 1, 4, 2]])
    batch = Batch((whole[:, :-1],), whole[:, 1:])
    found = both_directions(model, batch, Generator()).detach()
    for t in range(5):
        ahead = model(whole[:, : t + 1])[0, -1].log_softmax(0)[whole[0, t + 1]]
        back = model.before(whole[:, t + 1 :])[0, 0].log_softmax(0)[whole[0, t]]
        assert found[0, t].item() == pytest.approx(-(ahead + back).item() / 2)
    weight = torch.tensor([[1.0, 1, 1, 0, 0]])
    padded = Batch((batch.inputs[0] * weight.long(),), batch.targets * weight.long(), weight)
    part = both_directions(model, Batch((whole[:, :3],), whole[:, 1:4]), Generator())
    torch.testing.assert_close(both_directions(model, padded, Generator())[:, :3], part)
    weight = torch.tensor([0.0, 0.0, 1.0]).expand(
        len(whole), 3
    )  # a block of which the end alone is asked for
    asked = both_directions(model, Batch((whole[:, :3],), whole[:, 1:4], weight), Generator())
    torch.testing.assert_close(asked[:, 2], part[:, 2])


def test_a_step_is_the_pass_over_the_text(model) -> None:
    tokens = torch.tensor([[0, 2, 3, 1], [4, 1, 2, 0]])
    state, found = model.initial(tokens), []
    for token in tokens.unbind(1):
        logits, state = model.step(token, state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), model(tokens))
    drawn = sampled(model, 3, 6, tokens[0], lambda logits: logits.argmax(-1), Generator().manual_seed(0))
    assert drawn.shape == (3, 6)


def test_any_string_has_a_vector_that_is_its_own(model) -> None:
    """A word that training lacks, none, and one longer than is read; the rows beside it play no part."""
    strange = ["zebra", "", "né", "x" * 200, "日本"]
    together = model.elmo.words(spelled(strange))
    for word, vector in zip(strange, together, strict=True):
        torch.testing.assert_close(model.elmo.words(spelled([word]))[0], vector)
    torch.testing.assert_close(together[2], model.elmo.vectors()[4])
    assert torch.cdist(together, together).fill_diagonal_(1).min() > 1e-6
    assert spelled(["é"]).tolist() == [[257, 0xC3 + 1, 0xA9 + 1, 258]]


def test_the_mixture_has_a_share_a_layer_and_not_a_vector() -> None:
    """L + 1 numbers that sum to 1; the layers collapse linearly, directions together."""
    mix = Mix(3).double()
    assert [tuple(p.shape) for p in mix.parameters()] == [(3,), ()]
    torch.nn.init.normal_(mix.logits, generator=Generator().manual_seed(0))
    mix.scale.data.fill_(1.7)
    layers = [torch.randn(2, 5, 6, dtype=torch.float64) for _ in range(3)]
    shares = mix.logits.detach().exp() / mix.logits.detach().exp().sum()
    assert mix.shares.sum().item() == pytest.approx(1)
    torch.testing.assert_close(mix(layers), 1.7 * sum(s * h for s, h in zip(shares, layers, strict=True)))
    torch.testing.assert_close(Mix(3).double()(layers), sum(layers) / 3)


def test_a_classifier_has_the_body_of_the_language_model(model) -> None:
    torch.manual_seed(0)
    body = ELMo(WORDS, width=8, filters=4, characters=4)
    classifier = Classifier(body, 3).double().eval()
    shared = {name for name in model.state_dict() if name.startswith("elmo.")}
    assert shared == {name for name in classifier.state_dict() if name.startswith("elmo.")}
    other = ELMo(WORDS[::-1], width=8, filters=4, characters=4).double()
    other.load_state_dict(model.elmo.state_dict())  # of other words, at other places: each keeps its vector
    torch.testing.assert_close(other.vectors().flip(0), model.elmo.vectors())
    tokens = torch.tensor([[0, 2, 3, 1, 4], [4, 1, 2, 0, 0], [0, 0, 0, 0, 0]])
    logits = classifier(tokens, torch.tensor([5, 3, 0]))
    torch.testing.assert_close(logits[1:2], classifier(tokens[1:2, :3]))
    torch.testing.assert_close(logits[2], classifier.head.bias)
    with pytest.raises(ValueError, match="layers must be at least 1"):
        ELMo(WORDS, layers=0)


def test_the_probabilities_of_all_texts_of_a_length_sum_to_1(model) -> None:
    """After any first word, forward; of a model that reads the future they do not."""
    texts = torch.cartesian_prod(*[torch.arange(6)] * 3)
    whole = torch.cat((torch.full((len(texts), 1), 2), texts), 1)
    log_p = model(whole[:, :-1]).log_softmax(-1).gather(-1, texts[..., None]).sum((1, 2))
    assert log_p.exp().sum().item() == pytest.approx(1)
    seeing = model.before(whole).log_softmax(-1)[:, 1:].gather(-1, texts[..., None]).sum((1, 2))
    assert abs(seeing.exp().sum().item() - 1) > 1e-3


def test_a_long_word_is_cut_between_its_begin_and_its_end() -> None:
    rows = spelled(["x" * 80, "ab", "\u00e9"])
    assert rows.shape == (3, 50) and rows[0, [0, 1, 48, 49]].tolist() == [257, 121, 121, 258]
    assert rows[1, :5].tolist() == [257, 98, 99, 258, 0] and rows[2, :4].tolist() == [257, 196, 170, 258]


def test_characters_are_no_words_and_it_is_said_how_to_read_some() -> None:
    with pytest.raises(ValueError, match=r"got 4 characters; set --data\.level words"):
        ELMo(("<unk>", "a", "b", "\n"))
    assert ELMo(("<unk>", "a", "be")).spelling.shape == (3, 7)


def test_a_language_model_begins_with_the_frequencies_of_ranked_words() -> None:
    """Those of Zipf and Mandelbrot: with even ones both LSTMs saturate to state them, and read nothing."""
    head = LanguageModel(ELMo(WORDS, width=8), 6).head
    p = head.bias.detach().softmax(0)
    torch.testing.assert_close(p / p[0], 2.7 / (torch.arange(6) + 2.7))
