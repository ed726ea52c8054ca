"""Novikoff's theorem: both lemmas at every mistake, the bound, its tight case, the broken premise."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from scipy.linalg import hadamard
from sklearn.svm import SVC

from margin import Training, audit, train
from margin.classic.perceptron.claims import augmented, demo, novikoff, run_rule
from margin.classic.perceptron.model import Perceptron
from margin.classic.perceptron.separation import separate, xor
from margin.core.findings import Subject, Verdict
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch
from margin.data.examples import Arrays, Data
from margin.data.preprocess import Standardize
from margin.engine.loop import risk
from margin.nn.preprocessed import Preprocessed


def subject_of(x: torch.Tensor, labels: torch.Tensor) -> Subject:
    batches = [Batch((x,), labels)]
    return Subject(
        model=Perceptron(x.shape[1], 2),
        test=batches,
        train=batches,
        task=HALFSPACE,
        objective=risk(HALFSPACE),
    )


@pytest.mark.parametrize("seed", range(8))
def test_both_lemmas_hold_at_every_mistake(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, 3, generator=generator)
    score = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3
    keep = score.abs() > 0.05
    finding = novikoff(subject_of(x[keep], (score[keep] > 0).long()))
    xa, sign = augmented(subject_of(x[keep], (score[keep] > 0).long()))
    w = separate(sign[:, None] * xa).weight
    gamma = float((sign * (xa @ w)).min() / w.norm())
    t = torch.arange(1, len(finding.curves["length"]) + 1)
    assert finding.verdict is Verdict.HOLDS
    assert (finding.curves["projection"] >= t * gamma - 1e-9).all()
    assert (finding.curves["length"] <= xa.norm(dim=1).max() * t.double().sqrt() + 1e-9).all()
    assert int(finding.value) == len(t)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_orthogonal_vectors_attain_the_bound(n: int) -> None:
    # rows of a Hadamard matrix: orthogonal, of norm sqrt(n), with a column of ones that serves as the bias
    rows = torch.from_numpy(hadamard(n)).float()
    assert (rows[:, 0] == 1).all()
    finding = novikoff(subject_of(rows[:, 1:], torch.ones(n, dtype=torch.long)))
    assert int(finding.value) == n
    assert int(finding.high) == n
    assert finding.verdict is Verdict.HOLDS


@pytest.mark.parametrize("point", [(3.0, 4.0), (0.0, 3.0), (1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 4.0)])
def test_one_point_takes_one_mistake(point: tuple[float, float]) -> None:
    # R = gamma; in floating point (R / gamma)^2 is 1 - 2e-16 for some of these, and its floor 0
    finding = novikoff(subject_of(torch.tensor([point]), torch.tensor([1])))
    assert (int(finding.value), int(finding.high)) == (1, 1)
    assert finding.verdict is Verdict.HOLDS


def test_a_set_that_no_hyperplane_separates_leaves_the_theorem_unfounded() -> None:
    x = torch.tensor([[0.0, 0], [1, 1], [0, 1], [1, 0]])
    finding = novikoff(subject_of(x, torch.tensor([1, 1, 0, 0])))
    assert finding.verdict is Verdict.UNFOUNDED
    assert "infeasible" in finding.premises[0].evidence


def test_a_run_that_is_cut_short_fails() -> None:
    x = torch.tensor([[1.0, 0.001], [1.0, -0.001]])
    finding = novikoff(subject_of(x, torch.tensor([1, 0])), passes=1)
    assert finding.verdict is Verdict.FAILED


def test_the_margin_found_is_the_known_one() -> None:
    # two points 2 apart on a line, augmented: the largest margin by a fine search over the circle
    x = torch.tensor([[2.0, 1.0], [-1.0, 1.0], [3.0, 1.0]], dtype=torch.float64)
    sign = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    angle = torch.linspace(0, 2 * math.pi, 1_000_001, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])
    best = (sign[:, None] * (x @ circle)).min(0).values.max()
    w = separate(sign[:, None] * x).weight
    assert abs(float((sign * (x @ w)).min() / w.norm() - best)) <= 1e-5


def test_the_course_ends_without_a_mistake() -> None:
    x, sign = augmented(demo())
    unit = separate(sign[:, None] * x).weight
    course = run_rule(x, sign, unit / unit.norm(), 1000)
    assert course.converged
    assert not run_rule(x, sign, unit, 1).converged or course.mistakes == 0


def test_a_finding_of_the_demonstration_is_exact() -> None:
    finding = novikoff(demo())
    assert finding.kind == "exact"
    assert dataclasses.is_dataclass(finding)
    assert finding.value.dtype == torch.long


def test_the_theorem_speaks_of_the_models_own_units() -> None:
    x, labels = torch.tensor([[10.0, 3.0], [14.0, -1.0]]), torch.tensor([1, 0])
    bare = subject_of(x, labels)
    scale = Standardize(torch.tensor([12.0, 1.0]), torch.tensor([2.0, 2.0]))
    behind = dataclasses.replace(bare, model=Preprocessed(scale, bare.model))
    rows, sign = augmented(behind)
    assert rows.tolist() == [[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]
    assert sign.tolist() == [1.0, -1.0]
    assert int(novikoff(behind).high) == 1  # R^2 = 3, gamma = sqrt(2): w along (-1, 1, 0)


def test_the_premise_is_proved_by_the_separator() -> None:
    finding = novikoff(subject_of(torch.tensor([[3.0, 4.0]]), torch.tensor([1])))
    (premise,) = finding.premises
    assert premise.status == "proved"
    assert "gamma = 5.099, R = 5.099" in premise.evidence  # sqrt(3^2 + 4^2 + 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_that_of_a_machines_margin(seed: int) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(seed))
    subject = subject_of(x, (x[:, 0] > 0.4 * x[:, 1] + 0.2).long())
    rows, sign = augmented(subject)
    z = sign[:, None] * rows
    # through the origin: the points and their negatives
    machine = SVC(kernel="linear", C=1e8, tol=1e-9).fit(torch.cat((z, -z)).numpy(), [1] * 60 + [-1] * 60)
    w = torch.tensor(machine.coef_[0])
    ratio = float((z.norm(dim=1).max() / ((z @ w).min() / w.norm())) ** 2)
    finding = novikoff(subject)
    assert ratio * (1 - 2e-3) - 1 <= int(finding.high) <= ratio * (1 + 1e-9)
    assert int(finding.value) <= ratio


def test_training_on_xor_ends_at_its_budget_and_the_audit_says_why(tmp_path: Path) -> None:
    x, sign = xor()
    part = Arrays((x.float(),), (sign > 0).long())
    spec = {"in_features": 2, "num_classes": 2}
    data = Data(name="xor", splits={"train": part, "val": part}, spec=spec)
    run = train("classic/perceptron", data, {}, Training(epochs=30), out=tmp_path / "run")
    assert run.reason == "max_steps"
    names = ("classic/perceptron.novikoff", "classic/separation.separable")
    findings = audit(run, data, claims=names).findings
    assert findings[names[0]].verdict is Verdict.UNFOUNDED
    assert findings[names[0]].premises[0].status == "refuted"
    assert "the linear program is infeasible" in findings[names[0]].premises[0].evidence
    assert findings[names[1]].value.tolist() == [0]
