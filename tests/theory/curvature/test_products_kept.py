"""What one question of curvature computes is kept for the next: the same numbers, fewer products."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.findings import NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature import trained_weights
from margin.theory.curvature.hessian import Products, RiskHessian, risk_hessian
from margin.theory.curvature.smoothness import along_gradient_claim
from margin.theory.curvature.spectrum_claims import kind
from margin.theory.curvature.trained_weights import differentiated, leading, sharpness


@pytest.fixture
def subject() -> Subject:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))  # above what is written down
    x, y = torch.randn(90, 12), torch.randint(3, (90,))
    batch = [Batch((x,), y)]
    return Subject(model=net, test=batch, train=batch, task=CLASSES, objective=risk(CLASSES))


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products were computed, not remembered."""
    made: list[int] = []
    own = RiskHessian._product

    def counted(
        self: RiskHessian, gradient: list[torch.Tensor], direction: list[torch.Tensor]
    ) -> torch.Tensor:
        made.append(1)
        return own(self, gradient, direction)

    monkeypatch.setattr(RiskHessian, "_product", counted)
    return made


def test_ends_kind_and_leading_eigenvalues_ask_for_the_same_products(subject, products):
    first = sharpness(subject)
    steps = len(products)
    assert steps >= 20
    again = kind(subject)
    assert len(products) <= steps + 4  # the premise is kept, the Krylov space is the same
    largest = leading(subject)
    assert len(products) <= steps + 40
    alone = [kind(replace(subject)), leading(replace(subject))]
    torch.testing.assert_close(again.value, alone[0].value, rtol=0, atol=0)
    torch.testing.assert_close(largest.value, alone[1].value, rtol=0, atol=0)
    assert first.value[0].item() == pytest.approx(largest.value[0].item(), rel=1e-5)


def test_what_was_kept_is_not_of_other_weights(subject):
    before = along_gradient_claim(subject).value.item()
    with torch.no_grad():
        subject.model[0].weight.mul_(2)
    moved = along_gradient_claim(subject).value.item()
    assert moved == along_gradient_claim(replace(subject)).value.item()
    assert moved != pytest.approx(before, rel=1e-3)


def test_a_vector_alike_in_its_mark_alone_is_no_hit():
    known = Products()
    v = torch.tensor([1.0, 2.0, 3.0])
    known.put(v, 7 * v)
    assert known.get(v).tolist() == [7, 14, 21]
    assert known.get(torch.tensor([1.0, 3.0, 2.0])) is None  # the same first number and sum


def test_a_loss_that_is_not_finite_is_remembered_as_such(subject):
    known = Products()
    bad = [subject.train[0]._replace(inputs=(subject.train[0].inputs[0] * torch.nan,))]
    for _ in range(2):
        with risk_hessian(subject.model, bad, subject.objective, known=known) as H:
            H.risk_gradient()
            assert not H.finite


@pytest.mark.parametrize(
    ("most", "mark"), [(None, ""), (90, ""), (200, ""), (40, "40 drawn"), (1, "1 drawn")]
)
def test_a_subject_says_how_many_examples_are_drawn(subject, most, mark):
    found = differentiated(subject.drawing(most), 1024)
    assert found.mark == mark
    assert sum(len(b.inputs[0]) for b in found.batches) == min(90, most or 90)


def test_all_of_twice_as_many_are_taken_unless_the_subject_allows_fewer(subject):
    assert differentiated(subject, 50).mark == ""
    assert differentiated(subject.drawing(80), 50).mark == "50 drawn"
    assert differentiated(subject, 44).mark == "44 drawn"


def test_vectors_that_do_not_fit_in_memory_are_not_begun(subject, monkeypatch):
    monkeypatch.setattr(trained_weights, "MEMORY", 8 * 387 * 19)
    with pytest.raises(NotAsked, match="20 Lanczos steps of 387 weights"):
        sharpness(subject)
    monkeypatch.setattr(trained_weights, "MEMORY", 8 * 387 * 20)
    assert sharpness(subject).value.isfinite().all()
