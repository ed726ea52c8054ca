"""Claims about a Hopfield network: they hold, their broken premises are named, their limits are limits."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from margin.auditing.report.plots import plot
from margin.classic.memory import hopfield_claims as claims
from margin.classic.memory.associative_memory import WithoutTargets, wrong_units
from margin.classic.memory.hopfield import Hopfield
from margin.classic.memory.hopfield_theory import flip_probability, flip_probability_limit
from margin.core.findings import Subject, Verdict
from margin.core.tasks import MEMORY
from margin.data.examples import Arrays, InOrder
from margin.data.preprocess import Standardize
from margin.nn.preprocessed import Preprocessed


def patterns_of(seed: int, rows: int, n: int) -> torch.Tensor:
    return 2.0 * torch.randint(0, 2, (rows, n), generator=torch.Generator().manual_seed(seed)) - 1


def subject_of(patterns: torch.Tensor, probes: torch.Tensor | None = None, **options: object) -> Subject:
    rows, n = patterns.shape
    memory = Hopfield(n, rows, num_patterns=rows, inputs="signs", **options)
    memory.store(patterns, lambda x: x)
    probes = patterns if probes is None else probes
    test = InOrder(WithoutTargets(Arrays((probes,))), 512)
    return Subject(model=memory, test=test, task=MEMORY, objective=wrong_units)


@pytest.mark.parametrize("order", ["fixed", "random"])
@pytest.mark.parametrize("bias", ["none", "hebbian"])
@pytest.mark.parametrize("seed", range(3))
def test_the_energy_never_rises(seed: int, bias: str, order: str) -> None:
    probes = patterns_of(seed + 50, 6, 40)
    finding = claims.falling_energy(subject_of(patterns_of(seed, 12, 40), probes, bias=bias, order=order))
    assert finding.verdict is Verdict.HOLDS
    assert finding.curves["energy"].diff().max() <= 0
    assert finding.curves["energy"].diff().min() < 0


def test_a_tie_leaves_the_energy_as_it_is() -> None:
    # the bound is met with equality: two units, two patterns, every field 0
    P = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    finding = claims.falling_energy(subject_of(P))
    assert finding.value.item() == 0
    assert finding.curves["stimulus"].shape == (1, 2)


@pytest.mark.parametrize(
    ("entry", "said"), [((2, 5), r"w[2, 5] = "), ((3, 3), "w[3, 3] = 7, not 0"), ((0, 1), r"w[0, 1] = ")]
)
def test_weights_without_an_energy_leave_it_unfounded(entry: tuple[int, int], said: str) -> None:
    subject = subject_of(patterns_of(0, 3, 20))
    subject.model.correlation[entry] += 7
    finding = claims.falling_energy(subject)
    assert finding.verdict is Verdict.UNFOUNDED
    (premise,) = finding.premises
    assert said in premise.evidence


def test_asymmetric_weights_do_raise_the_energy() -> None:
    subject = subject_of(patterns_of(0, 1, 2), torch.ones(1, 2), max_sweeps=20)
    subject.model.correlation.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    subject.model.drive.copy_(torch.tensor([0.5, 0.25]))
    assert claims.falling_energy(subject).value > 0


def test_stimulus_trajectory_and_memory_have_the_shape_of_an_input() -> None:
    P = patterns_of(1, 2, 36)
    images = torch.where(torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0)) < 0.5, 3.0, 9.0)
    scale = Standardize(torch.tensor(6.0), torch.tensor(3.0))
    bare = subject_of(P)
    test = InOrder(WithoutTargets(Arrays((images,))), 512)
    subject = dataclasses.replace(bare, model=Preprocessed(scale, bare.model), test=test)
    curves = claims.falling_energy(subject).curves
    assert torch.equal(curves["stimulus"], torch.where(images[0] == 9, 1.0, -1.0).double())
    assert curves["retrieved"].shape == curves["memory"].shape == (1, 6, 6)
    assert curves["trajectory"].shape[1:] == (1, 6, 6)
    assert torch.equal(curves["trajectory"][0], curves["stimulus"])
    assert torch.equal(curves["trajectory"][-1], curves["retrieved"])
    assert len(curves["energy"]) == len(curves["step"])
    assert "energy" in plot("margin.classic.memory.figures:recall", claims.falling_energy(subject), "a")


@pytest.mark.parametrize("ties", ["up", "keep"])
@pytest.mark.parametrize("bias", ["none", "hebbian"])
@pytest.mark.parametrize("seed", range(5))
def test_the_criterion_and_the_network_agree(seed: int, bias: str, ties: str) -> None:
    finding = claims.crosstalk_criterion(subject_of(patterns_of(seed, 10, 40), bias=bias, ties=ties))
    assert finding.verdict is Verdict.HOLDS


def test_weights_that_are_not_hebbian_leave_the_criterion_unfounded() -> None:
    subject = subject_of(patterns_of(0, 3, 20))
    subject.model.correlation[4, 6] = subject.model.correlation[6, 4] = -60.0
    finding = claims.crosstalk_criterion(subject)
    assert finding.verdict is Verdict.UNFOUNDED
    assert finding.premises[0].evidence.startswith("w[4, 6] = -3, of the patterns ")


def test_the_share_of_fixed_points_stands_beside_its_limit() -> None:
    below = claims.exact_recall_limit(subject_of(patterns_of(0, 20, 1000)))
    assert (below.value.item(), below.high.item(), below.verdict) == (1.0, 1.0, Verdict.HOLDS)
    near = claims.exact_recall_limit(subject_of(patterns_of(0, 70, 1000)))
    assert (near.high.item(), near.verdict) == (1.0, Verdict.MEASURED)
    beyond = claims.exact_recall_limit(subject_of(patterns_of(0, 300, 1000)))
    assert (beyond.value.item(), beyond.high.item(), beyond.verdict) == (0.0, 0.0, Verdict.HOLDS)
    assert "n / (2 ln n) = 72.38 patterns" in beyond.statement


def test_the_share_of_unstable_bits_stands_beside_its_limit() -> None:
    P = patterns_of(3, 40, 100)
    finding = claims.unstable_bits(subject_of(P))
    assert finding.high.item() == flip_probability_limit(0.4)
    x = P.numpy()
    wrong = 0
    for t in range(40):
        for i in range(100):
            others = np.delete(x, i, axis=1)
            h = float(x[:, i] @ (others @ others[t]))
            wrong += (1.0 if h >= 0 else -1.0) != x[t, i]
    assert finding.value.item() == pytest.approx(wrong / 4000, abs=1e-12)
    assert finding.scope == "limit"


@pytest.mark.parametrize("ask", [claims.exact_recall_limit, claims.unstable_bits])
def test_patterns_that_are_not_random_leave_limits_unfounded(ask: object) -> None:
    P = patterns_of(4, 5, 200)
    biased = torch.where(torch.rand(5, 200, generator=torch.Generator().manual_seed(0)) < 0.1, 1.0, -1.0)
    finding = ask(subject_of(biased))
    assert finding.verdict is Verdict.UNFOUNDED
    assert any("% of the units are +1" in premise.evidence for premise in finding.premises)
    alike = P.clone()
    alike[3] = -P[1]
    alike[3, :10] *= -1
    finding = ask(subject_of(alike))
    assert any("patterns 1 and 3 overlap (up to sign) by 0.90" in p.evidence for p in finding.premises)
    with_bias = ask(subject_of(P, bias="hebbian"))
    assert any("has the threshold" in p.evidence for p in with_bias.premises if p.status == "refuted")


def test_random_patterns_pass_for_random() -> None:
    # a false alarm in a million
    for seed in range(100):
        finding = claims.unstable_bits(subject_of(patterns_of(seed, 10, 50)))
        assert finding.verdict is not Verdict.UNFOUNDED


@pytest.mark.parametrize(("n", "s"), [(60, 30), (200, 40)])
def test_the_exact_law_holds_and_its_limit_need_not(n: int, s: int) -> None:
    finding = claims.unstable_bits_of_random_patterns(subject_of(patterns_of(0, s, n)))
    assert finding.verdict is Verdict.HOLDS
    assert finding.high.item() == flip_probability(n, s)


def test_too_few_networks_are_inconclusive() -> None:
    finding = claims.unstable_bits_of_random_patterns(subject_of(patterns_of(0, 8, 20)), nets=4)
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_other_models_are_refused() -> None:
    assert claims.is_hopfield(claims.demo())
    assert not claims.is_hopfield(dataclasses.replace(claims.demo(), model=torch.nn.Linear(2, 2)))
    assert not claims.is_hopfield(dataclasses.replace(claims.demo(), model=Hopfield(4, 4)))


def test_a_finding_is_json() -> None:
    text = json.dumps(claims.falling_energy(claims.demo()).as_json())
    assert math.isfinite(json.loads(text)["value"])
