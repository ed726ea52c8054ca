"""What is read from a recurrence: classes, numbers and next tokens, of any length."""

import inspect
import math
from types import ModuleType

import pytest
import torch
from torch import Generator

from margin.sequence.convolution import tcn
from margin.sequence.linear import linear_system, lru, mingru, minlstm
from margin.sequence.recurrent import bidirectional, elman, gru, lstm
from margin.sequence.recurrent.readouts import LanguageModel, SequenceClassifier, SequenceRegressor

LENGTHS = torch.tensor([5, 2, 0])


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_each_sequence_is_read_as_if_alone(pool: str) -> None:
    torch.manual_seed(0)
    recurrence = gru.recurrence(2, hidden=4).double()
    model = SequenceClassifier(recurrence, 3, pool=pool).double()
    value = SequenceRegressor(recurrence, pool=pool).double()
    x = torch.randn(3, 5, 2, dtype=torch.float64)
    logits, values = model(x, LENGTHS), value(x, LENGTHS)
    for i, n in enumerate(LENGTHS.tolist()):
        outputs, _ = recurrence(x[i : i + 1, :n])
        if n == 0:
            torch.testing.assert_close(logits[i], model.head.bias)  # of nothing, the bias
            torch.testing.assert_close(values[i], value.head.bias[0])
            continue
        read = outputs[0, -1] if pool == "last" else outputs[0].mean(0)
        torch.testing.assert_close(logits[i], model.head.weight @ read + model.head.bias)
        torch.testing.assert_close(values[i], value.head.weight[0] @ read + value.head.bias[0])
    torch.testing.assert_close(model(x), model(x, torch.full((3,), 5)))


def language(**options: str) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(elman.recurrence(4, hidden=4, recurrent_init="orthogonal"), 5, **options)


def test_a_language_model_streams() -> None:
    model, tokens = language().double(), torch.randint(5, (3, 6), generator=Generator().manual_seed(0))
    logits, state = model(tokens), model.initial(tokens[:, 0])
    assert state[0].dtype == torch.float64
    for t in range(6):
        one, state = model.step(tokens[:, t], state)
        torch.testing.assert_close(one, logits[:, t])


def test_padding_tokens_change_nothing_and_get_no_logits() -> None:
    model, tokens = language(), torch.randint(5, (3, 6), generator=Generator().manual_seed(0))
    lengths = torch.tensor([6, 3, 0])
    logits = model(tokens, lengths)
    other = tokens.clone()
    other[1, 3:] = 4 - other[1, 3:]
    assert torch.equal(model(other, lengths), logits)
    assert not logits[1, 3:].any()
    torch.testing.assert_close(logits[1, :3], model(tokens[1:2, :3])[0])


def test_a_tied_readout_is_one_matrix_and_begins_near_even() -> None:
    model = language(readout="tied")
    assert model.head.weight is model.embedding.weight
    names = [name for name, _ in model.named_parameters()]
    assert "head.weight" not in names
    torch.manual_seed(0)
    wide = LanguageModel(gru.recurrence(256, hidden=256), 50, readout="tied")
    tokens = torch.randint(50, (8, 20))
    loss = torch.nn.functional.cross_entropy(wide(tokens).flatten(0, 1), tokens.flatten())
    assert abs(float(loss.detach()) - math.log(50)) < 0.5
    with pytest.raises(ValueError, match="input_size = output_size: got 3 and 4"):
        LanguageModel(elman.recurrence(3, hidden=4), 5, readout="tied")
    with pytest.raises((ValueError, TypeError), match="none"):  # of the type hook, where it is on
        LanguageModel(elman.recurrence(4, hidden=4), 5, readout="none")
    for model in (SequenceClassifier, SequenceRegressor):
        given = (elman.recurrence(3), 2)[: 2 if model is SequenceClassifier else 1]
        with pytest.raises((ValueError, TypeError), match="max"):
            model(*given, pool="max")
    with pytest.raises(ValueError, match="reads the future"):
        LanguageModel(bidirectional.recurrence(3, hidden=4), 5)


def test_samples_are_the_models_own_sequences() -> None:
    """The distribution over all 5^2 continuations of a prefix, by the chain rule, against 20,000 draws.

    The largest of 25 deviations exceeds 5.5 standard errors with probability below 1e-6.
    """
    model = language()
    with torch.no_grad():
        model.head.weight.mul_(4)
        prefix = torch.tensor([3, 1])
        pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5))
        whole = torch.cat((prefix.expand(25, 2), pairs), 1)
        log_p = model(whole).log_softmax(-1)
        p = (log_p[:, 1].gather(1, pairs[:, :1]) + log_p[:, 2].gather(1, pairs[:, 1:]))[:, 0].exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    drawn = model.sample(20_000, generator=Generator().manual_seed(0), length=2, prefix=prefix)
    found = (5 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=25) / 20_000
    assert bool(((found - p).abs() < 5.5 * (p * (1 - p) / 20_000).sqrt() + 1e-9).all())


def test_samples_have_their_shape_and_are_repeatable() -> None:
    model = language()
    for length in (0, 1, 7):
        one, other = (model.sample(3, generator=Generator().manual_seed(1), length=length) for _ in range(2))
        assert one.shape == (3, length)
        assert torch.equal(one, other)
    greedy = model.sample(2, generator=Generator(), length=5, prefix=torch.tensor([2]), temperature=0)
    assert torch.equal(greedy[0], greedy[1])
    assert not model.sample(1, generator=Generator()).requires_grad
    for count, length in ((0, 5), (1, -1)):
        with pytest.raises(ValueError, match=f"count >= 1 and length >= 0: got {count} and {length}"):
            model.sample(count, generator=Generator(), length=length)


def test_a_first_token_is_drawn_evenly_where_there_is_no_prefix() -> None:
    """5,000 draws of 5 tokens; a chi-square of 4 degrees above 30 has probability 5e-6."""
    first = language().sample(5000, generator=Generator().manual_seed(2), length=1)[:, 0]
    assert float((first.bincount(minlength=5) - 1000).square().sum() / 1000) < 30


@pytest.mark.parametrize("area", [bidirectional, elman, gru, linear_system, lru, lstm, mingru, minlstm, tcn])
def test_dropping_all_of_what_is_read_is_refused(area: ModuleType) -> None:
    """What is read would be zeros, so no gradient would reach the recurrence: [0, 1) does not hold 1."""
    for build, given in (("classifier", (3, 2)), ("regressor", (3,)), ("language", (5,))):
        if hasattr(area, build):
            with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got 1$"):
                getattr(area, build)(*given, dropout=1)
    for model, given in ((SequenceClassifier, (2,)), (SequenceRegressor, ())):
        with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got 1$"):
            model(elman.recurrence(3), *given, dropout=1)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\): got -0.5$"):
        LanguageModel(elman.recurrence(3), 5, dropout=-0.5)


def test_dropout_acts_in_training_alone() -> None:
    torch.manual_seed(0)
    x, tokens = torch.randn(2, 4, 3), torch.randint(5, (2, 4))
    for model, inputs in (
        (gru.classifier(3, 2, dropout=0.5), x),
        (gru.regressor(3, dropout=0.5), x),
        (gru.language(5, dropout=0.5), tokens),
    ):
        assert not torch.equal(model(inputs), model(inputs))
        model.eval()
        assert torch.equal(model(inputs), model(inputs))


def test_a_head_gives_a_body_its_options_and_no_others():
    def options(build):
        kept = [p for p in inspect.signature(build).parameters.values() if p.kind is p.KEYWORD_ONLY]
        return {p.name: p.default for p in kept}

    assert options(tcn.regressor) == {"hidden": 32, "layers": 6, "kernel": 3, "dropout": 0.0, "pool": "last"}
    # a vector of a token is as long as the blocks are wide, and nothing is dropped but in them
    assert options(tcn.language) == {"hidden": 64, "layers": 5, "kernel": 3, "dropout": 0.0}
    assert options(linear_system.classifier)["pool"] == "mean"
    assert options(lstm.forecaster) == {
        "hidden": 64,
        "layers": 1,
        "dropout": 0.0,
        "reads": "all",
        "normalize": "last",
    }
    model = tcn.language(7, hidden=6, layers=1, dropout=0.5)
    assert (model.embedding.embedding_dim, model.recurrence.input_size, model.dropout.p) == (6, 6, 0.0)
    model = lru.classifier(2, 3, width=4, states=3, dropout=0.5)
    assert (model.pool, model.dropout.p, model.recurrence.blocks[0].dropout.p) == ("mean", 0.0, 0.5)
    model = gru.regressor(2, dropout=0.25)
    assert (model.pool, model.dropout.p) == ("last", 0.25)
    with pytest.raises(TypeError, match="readout"):
        tcn.language(7, readout="tied")
