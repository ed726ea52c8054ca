"""Claims about training sets and hyperplanes: known answers, broken premises, large sets, bad rows."""

import dataclasses

import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

from margin.classic.perceptron import PERCEPTRON, separation_claims
from margin.classic.perceptron import claims as perceptron_claims
from margin.classic.perceptron.averaged_perceptron import AveragedPerceptron
from margin.classic.perceptron.claims import (
    has_rows,
    is_halfspace,
    lemmas,
    long_demo,
    margin,
    novikoff,
    plane,
    scale,
    signed_examples,
    span,
    trained_demo,
    training_rows,
    wide_demo,
)
from margin.classic.perceptron.cover import count, cover_count, transition
from margin.classic.perceptron.max_margin import MaximumMargin
from margin.classic.perceptron.model import Perceptron
from margin.classic.perceptron.separation import xor
from margin.classic.perceptron.separation_claims import demo as widest_demo
from margin.classic.perceptron.separation_claims import (
    optimality,
    separable,
    version_space,
    version_space_demo,
    xor_demo,
)
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, HALFSPACE
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, risk


def subject_of(x: torch.Tensor, labels: torch.Tensor, model: nn.Module | None = None) -> Subject:
    batches = [Batch((x.float(),), labels)]
    return Subject(
        model=model or Perceptron(x.shape[1], 2),
        test=batches,
        train=batches,
        task=HALFSPACE,
        objective=risk(HALFSPACE),
    )


def gaussian(seed: int, rows: int, features: int) -> Subject:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator)
    return subject_of(x, (x[:, 0] > 0.5 * x[:, -1] + 0.1).long())


def unseparable() -> Subject:
    x, sign = xor()
    return subject_of(x, (sign > 0).long())


# lemmas


@pytest.mark.parametrize("seed", range(6))
def test_the_lemmas_hold_at_every_mistake(seed: int) -> None:
    finding = lemmas(gaussian(seed, 80, 4))
    assert finding.verdict is Verdict.HOLDS
    assert (finding.curves["w* . w"] >= finding.curves["t gamma"] - 1e-9).all()
    assert (finding.curves["|w|"] <= finding.curves["R sqrt(t)"] + 1e-9).all()
    rows, _ = signed_examples(gaussian(seed, 80, 4))
    t = torch.arange(1, len(finding.curves["|w|"]) + 1).double()
    radius = (rows.square().sum(1) + 1).max().sqrt()
    assert torch.allclose(finding.curves["R sqrt(t)"], radius * t.sqrt(), rtol=1e-12, atol=0)
    assert torch.allclose(finding.curves["t gamma"], t * finding.curves["t gamma"][0], rtol=1e-12, atol=0)
    assert len(finding.curves["|w|"]) == int(novikoff(gaussian(seed, 80, 4)).value)


def test_the_lemmas_are_tight_on_orthonormal_points() -> None:
    """n orthonormal points, all positive: w* . w_t = t gamma and |w_t| = R sqrt(t) at every mistake."""
    from scipy.linalg import hadamard

    rows = torch.from_numpy(hadamard(8)).float()
    finding = lemmas(subject_of(rows[:, 1:], torch.ones(8, dtype=torch.long)))
    assert finding.value.tolist() == pytest.approx([1, 1], abs=1e-12)
    assert finding.verdict is Verdict.HOLDS


@pytest.mark.parametrize("n", range(1, 51))
def test_orthonormal_points_take_n_mistakes_and_the_bound_is_n(n: int) -> None:
    from margin.classic.perceptron.model import mistakes_of_pass
    from margin.classic.perceptron.separation import separate

    z = torch.eye(n, dtype=torch.float64)
    found = separate(z)
    assert found.margin == pytest.approx(n**-0.5, rel=1e-12)
    w, made = torch.zeros(n).double(), 0
    while more := len(mistakes_of_pass(w, None, z, torch.ones(n).double())):
        made += more
    assert made == n == int((found.radius / found.margin) ** 2 * (1 + 1e-9))


def test_the_printed_chain_would_bound_nothing() -> None:
    """Many notes print the middle of the proof as gamma / (R sqrt(t)); it is sqrt(t) gamma / R."""
    finding = lemmas(long_demo())
    t = torch.arange(1, len(finding.curves["|w|"]) + 1, dtype=torch.float64)
    gamma, R = finding.curves["t gamma"][0], finding.curves["R sqrt(t)"][0]
    cosine = finding.curves["w* . w"] / finding.curves["|w|"]
    assert (cosine >= t.sqrt() * gamma / R - 1e-12).all()
    assert (cosine <= 1 + 1e-12).all()
    assert (gamma / (R * t.sqrt()) <= 1).all()  # for every t: no bound on the number of mistakes


def test_lemmas_of_what_cannot_be_separated_are_unfounded() -> None:
    finding = lemmas(unseparable())
    assert finding.verdict is Verdict.UNFOUNDED
    assert finding.premises[0].status == "refuted"
    assert "infeasible" in finding.premises[0].evidence


def test_a_large_set_has_a_looser_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = novikoff(gaussian(1, 60, 2))
    monkeypatch.setattr("margin.classic.perceptron.separation.MOST_ROWS", 50)
    loose = novikoff(gaussian(1, 60, 2))
    assert int(loose.value) == int(exact.value)
    assert int(loose.high) >= int(exact.high) >= int(exact.value)
    assert "lower bound" in loose.premises[0].evidence
    assert loose.verdict is lemmas(gaussian(1, 60, 2)).verdict is Verdict.HOLDS


def test_a_question_that_stays_open_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margin.classic.perceptron.separation.MOST_ROWS", 2)
    monkeypatch.setattr("margin.classic.perceptron.separation.MOST_ENTRIES", 3)
    for ask in (novikoff, lemmas):
        finding = ask(unseparable())
        assert finding.verdict is Verdict.FAILED
        assert finding.failure.startswith("undecided")


# span


def test_the_trained_weights_lie_in_the_span_of_fewer_examples_than_features() -> None:
    finding = span(wide_demo())
    assert finding.verdict is Verdict.HOLDS
    assert finding.value.numel() == 2
    assert finding.curves["mistakes of each example"].tolist() == [
        float(round(n)) for n in finding.curves["mistakes of each example"].tolist()
    ]


def test_weights_that_did_not_begin_at_0_leave_the_span() -> None:
    subject = wide_demo()
    subject.model.weight.data += torch.randn(10, generator=torch.Generator().manual_seed(1))
    finding = span(subject)
    assert finding.verdicts == [Verdict.HOLDS, Verdict.VIOLATED]


def test_where_the_examples_span_everything_only_the_run_is_compared() -> None:
    assert span(trained_demo()).labels == ("the run's w less the sum of counts",)


# margin and scale


@pytest.mark.parametrize("seed", range(5))
def test_no_halfspace_has_more_margin_than_the_bound(seed: int) -> None:
    subject = gaussian(seed, 40, 2)
    generator = torch.Generator().manual_seed(seed)
    subject.model.weight.data = torch.randn(2, generator=generator)
    own, largest = margin(subject).value.tolist()
    assert own <= largest + 1e-9


def test_the_widest_separator_attains_the_bound() -> None:
    finding = margin(widest_demo())
    assert finding.labels == ("of this hyperplane", "the largest there is")
    assert finding.value.tolist() == pytest.approx([0.2, 0.2], rel=1e-6)
    assert finding.verdict is Verdict.MEASURED


def test_hulls_that_meet_leave_no_positive_margin() -> None:
    subject = unseparable()
    subject.model.weight.data = torch.tensor([1.0, 1.0])
    finding = margin(subject)
    assert float(finding.value[0]) < 0 == float(finding.value[1])
    assert margin(unseparable()).verdict is Verdict.FAILED  # untrained: w = 0 is no hyperplane


def test_the_picture_is_the_line_and_its_parallels() -> None:
    x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [3.0, 1.0]]).double()
    sign = torch.tensor([-1.0, 1.0, 1.0]).double()
    w, b = torch.tensor([1.0, 1.0]).double(), torch.tensor(-2.0).double()
    drawn = plane(x, sign, w, b)
    assert (drawn["boundary"] @ w + b).abs().max() <= 1e-12
    score = drawn["margin"] @ w + b
    assert score.tolist() == [pytest.approx([-2, -2], abs=1e-12), pytest.approx([2, 2], abs=1e-12)]
    assert drawn["labels"].tolist() == [0, 1, 1]
    # the line reaches beyond every point's foot on it
    along = (drawn["boundary"][1] - drawn["boundary"][0]) / (
        drawn["boundary"][1] - drawn["boundary"][0]
    ).norm()
    ends, feet = drawn["boundary"] @ along, x @ along
    assert ends.min() <= feet.min() <= feet.max() <= ends.max()
    assert plane(torch.ones(2, 3).double(), sign[:2], torch.ones(3).double(), b) == {}
    assert plane(x, sign, torch.zeros(2).double(), b) == {}


def test_a_factor_changes_nothing() -> None:
    assert scale(trained_demo()).verdict is Verdict.HOLDS
    assert scale(gaussian(0, 20, 2)).verdict is Verdict.FAILED  # w = 0


# separable


def test_xor_is_not_separable_and_coins_would_be_with_probability_7_8() -> None:
    finding = separable(xor_demo())
    assert finding.value.tolist() == [0]
    assert finding.verdict is Verdict.MEASURED
    assert "probability 0.875" in finding.statement  # C(4, 3) / 2^4
    assert "infeasible" in finding.statement
    assert finding.statement.startswith("class 1 is not separated by a hyperplane from the rest of the 4")


def test_of_iris_setosa_alone_is_separable_from_the_rest() -> None:
    x, species = (torch.tensor(array) for array in load_iris(return_X_y=True))
    subject = Subject(
        model=nn.Linear(4, 3),
        test=[],
        train=[Batch((x.float(),), species)],
        task=CLASSES,
        objective=risk(CLASSES),
        class_names=("setosa", "versicolor", "virginica"),
    )
    finding = separable(subject)
    assert finding.value.tolist() == [1, 0, 0]
    assert finding.labels == ("setosa", "versicolor", "virginica")


def test_as_many_points_as_weights_are_separable_whatever_their_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=generator)
    for labels in torch.cartesian_prod(*[torch.arange(2)] * 6)[1:-1]:
        finding = separable(subject_of(x, labels))
        assert finding.value.tolist() == [1]
        assert "coins would be with probability 1," in finding.statement
        assert finding.verdict is Verdict.MEASURED  # true of any such points: it is no news of a model
    x[5] = x[4]
    assert separable(subject_of(x, torch.tensor([0, 1, 0, 1, 0, 1]))).value.tolist() == [0]


def test_of_a_large_set_drawn_examples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation_claims, "MOST_NUMBERS", 60)
    assert "20 of 50 training examples, drawn at random" in separable(gaussian(0, 50, 2)).statement
    assert "of the 15 training examples" in separable(gaussian(0, 15, 2)).statement
    monkeypatch.setattr(separation_claims, "MOST_EXAMPLES", 9)
    assert "9 of 50 training examples, drawn at random" in separable(gaussian(0, 50, 2)).statement
    by_class = gaussian(0, 400, 2)  # sorted: the first 20 would be of one class
    x, labels = by_class.train[0].inputs[0], torch.arange(400) // 200
    monkeypatch.setattr(separation_claims, "MOST_EXAMPLES", 20)
    assert "one class" not in separable(subject_of(x, labels)).failure
    assert "20 of 400 training examples" in version_space(subject_of(x, labels)).statement
    alike = subject_of(torch.arange(6.0)[:, None], torch.ones(6, dtype=torch.long))
    assert separable(alike).failure == "the examples looked at are all of one class"


# version space


def test_the_version_space_only_shrinks() -> None:
    finding = version_space(version_space_demo())
    assert finding.verdict is Verdict.HOLDS
    assert (finding.curves["share"].diff() <= 0).all()
    assert finding.curves["share"][-1] > 0
    empty = version_space(unseparable())
    assert empty.curves["share"][-1] == 0
    assert empty.verdict is Verdict.HOLDS


def test_the_growth_of_the_version_space_is_counted_from_all_directions() -> None:
    # One example rules out half of the sphere: 20,000 draws, sd 70.7. A second like it rules out none, one
    # turned by a right angle half of the rest.
    one = subject_of(torch.tensor([[1.0, 2.0]]), torch.tensor([1]))
    assert abs(float(version_space(one).value) + 10_000) < 5 * 71
    twice = subject_of(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([1, 1]))
    assert float(version_space(twice).value) == 0
    # (x, 1) = (1, 1) and (-1, 1): orthogonal
    turned = subject_of(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    finding = version_space(turned)
    assert abs(float(finding.value) + 5_000) < 5 * 62
    assert (finding.curves["share"] - torch.tensor([0.5, 0.25])).abs().max() < 0.018


# Cover


def test_the_count_and_the_transition_on_random_points() -> None:
    for features in (1, 2, 3, 6):
        subject = gaussian(features, 12, features)
        finding = count(subject)
        assert finding.verdict is Verdict.HOLDS
        n = min(features, 3) + 1
        assert finding.value.tolist() == [cover_count(s, n) for s in range(1, 9)]
        half = transition(subject)
        assert half.verdict is Verdict.HOLDS
        assert int(half.value) == 2 ** (2 * n - 1)


def test_the_curve_crosses_one_half_at_two_examples_a_weight() -> None:
    curves = transition(gaussian(0, 12, 99)).curves
    ratio, share = curves["examples per weight"], curves["separable share"]
    assert float(share[(ratio - 2).abs().argmin()]) == pytest.approx(0.5, abs=1e-6)
    assert share[0] == 1
    assert share[-1] < 1e-6


def test_points_out_of_general_position_refute_the_premise() -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    x[6] = x[1]
    for ask in (count, transition):
        finding = ask(subject_of(x, torch.arange(8) % 2))
        assert finding.verdict is Verdict.UNFOUNDED
        assert "examples 0, 1, 2, 6 are linearly dependent" in finding.premises[0].evidence


def test_few_examples_are_enough_for_a_few_points() -> None:
    assert transition(gaussian(0, 3, 3)).verdict is Verdict.HOLDS
    with pytest.raises(ValueError, match=r"two training examples: got 1"):
        count(subject_of(torch.ones(1, 2), torch.tensor([1])))


# the widest separator


def test_optimality_holds_for_the_widest_and_not_for_another() -> None:
    assert optimality(widest_demo()).verdict is Verdict.HOLDS
    other = widest_demo()
    other.model.weight.data *= 1.01  # farther than 1 from the points, and no sum of them any more
    assert optimality(other).verdict is Verdict.VIOLATED
    larger = widest_demo()
    larger.model.multipliers *= 1.1
    assert optimality(larger).value.tolist() == pytest.approx([0.1, 0, 0, 0], abs=1e-5)
    uneven = widest_demo()
    support = int(uneven.model.multipliers.argmax())
    uneven.model.multipliers[support] *= 2
    shares = uneven.model.multipliers / uneven.model.multipliers.sum()
    assert float(optimality(uneven).value[1]) == pytest.approx(float(shares[support]) / 2, abs=1e-5)
    negative = widest_demo()
    negative.model.multipliers[0] = -1.0
    assert optimality(negative).verdict is Verdict.UNFOUNDED
    untrained = dataclasses.replace(widest_demo(), model=MaximumMargin(2, 2, 24))
    assert optimality(untrained).failure == "every multiplier is 0: it is not trained"
    fewer = dataclasses.replace(widest_demo(), model=MaximumMargin(2, 2, 3))
    assert optimality(fewer).failure == "it has 3 multipliers for 24 training examples"


# the rows


def test_examples_of_weight_0_are_left_out_and_the_rest_must_be_finite() -> None:
    x = torch.tensor([[1.0, 2.0], [torch.inf, 0.0], [3.0, 4.0]])
    labels = torch.tensor([1, 0, 0])
    subject = subject_of(x, labels)
    weighted = dataclasses.replace(subject, train=[Batch((x,), labels, torch.tensor([1.0, 0.0, 2.0]))])
    rows, kept = training_rows(weighted)
    assert rows.tolist() == [[1, 2], [3, 4]]
    assert kept.tolist() == [1, 0]
    for ask in (novikoff, separable, version_space, count):
        with pytest.raises(NonFiniteError, match=r"features must be finite: got inf in row 1, feature 0"):
            ask(subject)
    assert novikoff(weighted).verdict is Verdict.HOLDS


def test_labels_other_than_two_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be 0 or 1: got 2"):
        signed_examples(subject_of(torch.ones(3, 2), torch.tensor([0, 1, 2])))


def test_which_subjects_the_claims_are_for() -> None:
    perceptron, widest = trained_demo(), widest_demo()
    averaged = dataclasses.replace(perceptron, model=AveragedPerceptron(2, 2))
    linear = dataclasses.replace(perceptron, model=nn.Linear(2, 2))
    subjects = (perceptron, widest, averaged, linear)
    assert [is_halfspace(s) for s in subjects] == [True, True, True, False]
    assert [PERCEPTRON.is_met(s) for s in subjects] == [True, False, False, False]
    assert has_rows(linear)
    assert not has_rows(dataclasses.replace(linear, train=()))
    tokens = [Batch((torch.zeros(2, 3, dtype=torch.long),), torch.tensor([0, 1]))]
    assert not has_rows(dataclasses.replace(linear, train=tokens))
    assert perceptron_claims.MOST_ROWS == 5000


def test_constant_and_duplicate_columns_break_general_position_and_no_other_theorem() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 0] > 0.5 * x[:, 1] + 0.1).long()
    for column in (torch.full((40, 1), 3.0), x[:, :1]):
        subject = subject_of(torch.cat((x, column), 1), labels)
        for ask in (novikoff, lemmas, span, version_space):
            assert ask(subject).verdict is Verdict.HOLDS
        assert separable(subject).value.tolist() == [1]
        finding = count(subject)
        assert finding.verdict is Verdict.UNFOUNDED
        assert "are linearly dependent" in finding.premises[0].evidence
