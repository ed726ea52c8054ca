"""What is drawn for an audit: once, in the user's units, in the data's shape, without a trace."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, nn

import margin.generative.quality.generated as module
from margin.core.findings import Subject
from margin.core.tasks import DENSITY
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.generative.quality.generated import can_be_sampled, compared, draw, has_enough
from margin.nn.preprocessed import Preprocessed


class Drawing(nn.Module):
    """Draws rows around a shift, and counts how often it was asked."""

    def __init__(self, width: int = 2, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((width,), shift))
        self.dropout = nn.Dropout(0.9)
        self.counts: list[int] = []

    def sample(self, count: int, *, generator: Generator, label: int | None = None) -> torch.Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.counts.append(count)
        return self.dropout(torch.randn(count, len(self.shift), generator=generator) + self.shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).sum(1)


def rows(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, *shape, generator=Generator().manual_seed(seed))


def subject(model: nn.Module, x: torch.Tensor | None = None, **changes) -> Subject:
    x = rows(20, 2) if x is None else x
    made = Subject(
        model=model,
        test=(Batch((x[:12],)), Batch((x[12:],))),
        task=DENSITY,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )
    return replace(made, **changes)


def test_samples_are_drawn_once_and_again_when_weights_change() -> None:
    model = Drawing()
    asked = subject(model)
    first = compared(asked)
    assert compared(asked) is first
    assert compared(replace(asked, class_names=("a",))) is first
    assert model.counts == [20]
    with torch.no_grad():
        model.shift.add_(1)
    assert compared(asked) is not first
    assert compared(subject(model)) is not first
    torch.testing.assert_close(compared(asked).samples, first.samples + 1, rtol=0, atol=1e-6)


def test_other_data_of_a_model_are_not_taken_for_those_before() -> None:
    model = Drawing()
    for seed in range(8):  # a list that is gone may leave its place in memory to the next
        x = rows(20, 2, seed=seed)
        asked = subject(model, x)
        torch.testing.assert_close(compared(asked).test, x.double())
        del asked


def test_samples_are_in_the_users_units_and_the_datas_shape() -> None:
    scaling = Standardize(torch.tensor([[[10.0]]]).double(), torch.tensor([[[2.0]]]).double())
    model = Drawing(width=12)
    plain = draw(model, 30, (1, 3, 4))
    scaled = draw(Preprocessed(scaling, model), 30, (1, 3, 4))
    assert scaled.shape == (30, 1, 3, 4)
    torch.testing.assert_close(scaled, 10 + 2 * plain, rtol=1e-5, atol=1e-5)


def test_many_samples_come_in_turns_of_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 8)
    model = Drawing()
    found = draw(model, 20, (2,))
    assert model.counts == [8, 8, 4]
    assert len(found.unique(dim=0)) == 20
    assert module.draw(model, 20, (2,), seed=1).ne(found).all()


def test_drawing_leaves_no_trace() -> None:
    model = Drawing().train()
    before = torch.get_rng_state()
    compared(subject(model))
    assert model.training
    assert model.dropout.training
    assert torch.equal(before, torch.get_rng_state())


def test_rows_of_weight_0_are_left_out_and_labels_follow() -> None:
    x, y = rows(20, 2), torch.arange(20) % 3
    weight = (torch.arange(20) < 15).float()
    found = compared(subject(Drawing(), x, train=(Batch((x,), y, weight),), test=(Batch((x,), y, weight),)))
    torch.testing.assert_close(found.test, x[:15].double())
    assert found.labels.tolist() == y[:15].tolist()
    assert len(found.samples) == 15
    # values are no labels
    assert not len(compared(subject(Drawing(), x, train=(Batch((x,), y.float()),))).labels)


def test_of_many_rows_some_are_taken_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 7)
    monkeypatch.setattr(module, "TRAINING", 9)
    x = torch.arange(40).double()[:, None].expand(-1, 2)
    y = torch.arange(40)
    found = compared(subject(Drawing(), test=(Batch((x,)),), train=(Batch((x,), y),)))
    assert (len(found.test), len(found.samples), len(found.train)) == (7, 7, 9)
    assert found.train[:, 0].long().tolist() == found.labels.tolist()
    assert len(found.test.unique(dim=0)) == 7
    assert float(found.test.max()) > 20


def test_the_scale_is_each_features_or_all_pixels() -> None:
    x = rows(40, 3) * torch.tensor([1.0, 100.0, 0.0])
    found = compared(subject(Drawing(3), x, train=(Batch((x,)),)))
    torch.testing.assert_close(found.scale, torch.where(x.double().std(0) > 0, x.double().std(0), 1.0))
    images = rows(20, 1, 2, 2)
    found = compared(subject(Drawing(4), images))
    torch.testing.assert_close(found.scale, images.double().std())
    assert found.scaled(images).shape == (20, 4)
    assert "pixels" in found.unit


def test_samples_that_are_not_finite_say_so() -> None:
    found = compared(subject(Drawing(shift=torch.nan)))
    assert found.failure == "20 of 20 samples are not finite"

    class Refusing(Drawing):
        def sample(self, count: int, *, generator: Generator) -> torch.Tensor:
            raise ValueError("samples must be finite: got 3 of 9 that are not")

    assert compared(subject(Refusing())).failure.startswith("the model draws nothing: samples must be finite")


def test_what_draws_tokens_or_needs_more_is_not_asked() -> None:
    class Prefixed(Drawing):
        def sample(self, count: int, prefix: torch.Tensor, *, generator: Generator) -> torch.Tensor:
            return prefix

    x = rows(20, 2)
    assert can_be_sampled(subject(Drawing()))
    assert can_be_sampled(subject(Preprocessed(nn.Identity(), Drawing())))
    assert not can_be_sampled(subject(Prefixed()))
    assert not can_be_sampled(subject(nn.Linear(2, 2)))
    assert not can_be_sampled(subject(Drawing(), test=(Batch((torch.ones(20, 2, dtype=torch.int64),)),)))
    assert not can_be_sampled(subject(Drawing(), test=(Batch((x, x)),)))
    assert not can_be_sampled(subject(Drawing(), test=()))


def test_sixteen_held_out_examples_are_enough() -> None:
    assert has_enough(subject(Drawing(), rows(16, 2)))
    assert not has_enough(subject(Drawing(), rows(15, 2)))
