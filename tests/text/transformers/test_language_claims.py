"""Claims of any model of the next token: a GPT, a recurrent one, a module of one's own; and broken ones."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.sequence.recurrent import lstm
from margin.text.transformers import language_claims as claims
from margin.text.transformers.gpt import GPT


class Stated(nn.Module):
    """The same logits after every token: a stranger's model, without initial and step."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)


def subject_of(model: nn.Module, vocabulary: tuple[str, ...] = ()) -> Subject:
    return dataclasses.replace(claims.demo(), model=model, vocabulary=vocabulary)


def test_an_even_guess_has_the_perplexity_of_the_vocabulary() -> None:
    finding = claims.perplexity(subject_of(Stated(torch.zeros(5))))
    torch.testing.assert_close(finding.value[:2], torch.tensor([5.0, math.log2(5)]).double())
    assert finding.labels == (
        "perplexity per token",
        "bits per token",
        "perplexity of the training frequencies",
    )
    p = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625])
    subject = subject_of(Stated(p.log()), ("a", "é", "c", "\n", "<unk>"))
    finding = claims.perplexity(subject)
    targets = subject.test[0].targets
    bits = -p.log2()[targets].double()
    sizes = torch.tensor([1, 2, 1, 1, 5]).double()[targets]
    assert float(finding.value[1]) == pytest.approx(float(bits.mean()), rel=1e-6)
    assert float(finding.value[2]) == pytest.approx(float(bits.sum() / sizes.sum()), rel=1e-6)
    assert float(finding.value[0]) == pytest.approx(2 ** float(bits.mean()), rel=1e-6)
    seen = subject.train[0].targets.flatten().bincount(minlength=5) + 1.0
    frequent = (-(seen / seen.sum()).log()[targets].mean()).exp()
    assert float(finding.value[3]) == pytest.approx(float(frequent), rel=1e-5)


def test_bits_per_byte_weigh_each_text_in_bits_and_in_bytes() -> None:
    subject = subject_of(Stated(torch.zeros(5)), ("a", "é", "c", "\n", "<unk>"))
    (batch,) = subject.test
    weight = torch.linspace(0.5, 3, len(batch.targets)).double()
    finding = claims.perplexity(dataclasses.replace(subject, test=[batch._replace(weight=weight)]))
    sizes = torch.tensor([1, 2, 1, 1, 5]).double()[batch.targets].mean(1)
    per_byte = math.log2(5) * weight.sum() / (weight @ sizes)
    assert float(finding.value[2]) == pytest.approx(float(per_byte), rel=1e-6)
    assert float(per_byte) != pytest.approx(math.log2(5) / float(sizes.mean()), rel=1e-2)


def test_bytes_are_of_characters_and_byte_pairs_alone() -> None:
    assert claims.bytes_of(("a", "é", "€")).tolist() == [1, 2, 3]
    assert claims.bytes_of(("a", "Ġthe", "Ã©")).tolist() == [1, 4, 2]
    assert claims.bytes_of(("the", "dog")) is None and claims.bytes_of(()) is None


def test_what_reads_the_future_has_likelihoods_of_another_sum() -> None:
    subject = claims.demo()
    assert claims.normalization(subject).verdict == "holds"
    assert claims.normalization(subject_of(Stated(torch.randn(5)))).verdict == "holds"
    assert claims.normalization(subject_of(lstm.language(5, embedding=4, hidden=6))).verdict == "holds"
    for block in subject.model.blocks:
        block.attention.causal = False
    assert claims.normalization(subject).verdict == "violated"


def test_steps_are_the_whole_unless_they_forget() -> None:
    subject = claims.demo()
    assert claims.goes_on(subject) and claims.steps(subject).verdict == "holds"
    recurrent = subject_of(lstm.language(5, embedding=4, hidden=6))
    assert claims.goes_on(recurrent) and claims.steps(recurrent).verdict == "holds"
    assert not claims.goes_on(subject_of(Stated(torch.zeros(5))))

    class Forgets(GPT):
        def step(self, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
            return super().step(token, self.initial(token))

    torch.manual_seed(0)
    assert claims.steps(subject_of(Forgets(5, 8, width=8, depth=1, heads=2))).verdict == "violated"


def test_pairs_are_not_read_alone() -> None:
    subject = claims.demo()
    assert claims.reads_alone(subject)
    batch = subject.test[0]
    tokens, lengths = batch.inputs[0], torch.full((6,), 8)
    for inputs, alone in (
        ((tokens, lengths), True),
        ((tokens, lengths, tokens), False),
        ((tokens, tokens), False),
    ):
        given = dataclasses.replace(subject, test=[batch._replace(inputs=inputs)])
        assert claims.reads_alone(given) is alone


def test_a_single_text_has_no_error() -> None:
    batch = Batch((torch.zeros(1, 3).long(),), torch.zeros(1, 3).long())
    subject = Subject(model=Stated(torch.zeros(2)), test=[batch], task=TOKENS, objective=risk(TOKENS))
    assert claims.perplexity(subject).verdict == "failed"
