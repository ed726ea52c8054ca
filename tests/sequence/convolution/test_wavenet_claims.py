"""Cached generation is the whole network; one that forgets, or is not a number, is seen."""

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import TOKENS
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.preprocessed import Preprocessed
from margin.sequence.convolution import wavenet_claims
from margin.sequence.convolution.wavenet import WaveNet
from margin.sequence.convolution.wavenet_claims import cached, demo, is_wavenet
from margin.sequence.convolution.wavenet_generation import CachedSteps


def asked(model: nn.Module) -> Subject:
    row = torch.randint(5, (3, 41), generator=Generator().manual_seed(0))
    batch = Batch((row[:, :-1],), row[:, 1:])
    return Subject(model=model, test=[batch], task=TOKENS, objective=risk(TOKENS))


@pytest.mark.parametrize("options", [{}, {"kernel": 3}, {"stacks": 2}, {"kernel": 1}])
def test_it_holds(options: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = WaveNet(5, **{"width": 4, "skip": 4, "layers": 3} | options)
    for subject in (asked(model), asked(Preprocessed(nn.Identity(), model))):
        assert is_wavenet(subject)
        finding = cached(subject)
        assert finding.verdict == Verdict.HOLDS
        assert float(finding.value) <= 1e-12


def test_generation_that_forgets_what_it_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedSteps, "_before", lambda self, places: self.bias.expand(-1, 2, -1))
    assert cached(asked(WaveNet(5, width=4, skip=4, layers=3))).verdict == Verdict.VIOLATED


def test_rings_that_are_off_by_a_hundredth_of_a_millionth_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Off(CachedSteps):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(x) + 1e-8

    monkeypatch.setattr(wavenet_claims, "CachedSteps", Off)
    finding = cached(demo())
    assert finding.verdict == Verdict.VIOLATED
    assert 1e-10 < float(finding.value) < 1e-6


def test_nan_fails_and_other_models_are_refused() -> None:
    model = WaveNet(5, width=4, skip=4, layers=3)
    with torch.no_grad():
        model.trunk.skip.weight.fill_(torch.nan)
    assert cached(asked(model)).verdict == Verdict.FAILED
    assert not is_wavenet(asked(nn.Embedding(5, 5)))
    with pytest.raises(ValueError, match="asked of a WaveNet: got Embedding"):
        cached(asked(nn.Embedding(5, 5)))


def test_the_demonstration_holds() -> None:
    before = torch.get_rng_state()
    assert cached(demo()).verdict == Verdict.HOLDS
    assert torch.equal(torch.get_rng_state(), before)
