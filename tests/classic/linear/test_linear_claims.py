"""The claims about linear models: they hold at solutions, are tight where built so, and fail where broken."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from scipy.linalg import hadamard

from margin.classic.factors import AUTOENCODER
from margin.classic.factors import PPCA as PPCA_MODEL
from margin.classic.factors import pca_claims as pca
from margin.classic.factors.pca import PCA, LinearAutoencoder, principal_components
from margin.classic.factors.ppca import PPCA
from margin.classic.factors.ppca_learning import expectation_maximization, maximum_likelihood
from margin.classic.linear import LASSO, LEAST_SQUARES, RIDGE, SOFTMAX
from margin.classic.linear import least_squares_claims as squares
from margin.classic.linear import logistic_claims as logistic
from margin.classic.linear import network_claims as networks
from margin.classic.linear import penalized_claims as penalized
from margin.classic.linear.lasso import Lasso, lasso
from margin.classic.linear.logistic import LogisticRegression, SoftmaxRegression, penalized_likelihood
from margin.classic.linear.networks import LinearNetwork
from margin.classic.linear.regression import LinearRegression, least_squares
from margin.classic.linear.ridge import KernelRidge, Ridge, ridge
from margin.core.findings import Finding, Subject, Verdict
from margin.core.tasks import CLASSES, CODES, VALUES
from margin.core.types import Batch, Objective
from margin.engine.loop import State, Step, risk
from margin.engine.objectives import core_of, negative_log_density, reconstruction_error
from margin.theory.prediction.held_out import stated


def numbers(rows: int, features: int, seed: int = 0, rank: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rank = features if rank is None else rank
    factors = [
        torch.randn(a, b, generator=generator, dtype=torch.float64)
        for a, b in ((rows, rank), (rank, features))
    ]
    return factors[0] @ factors[1] + 2 if rank < features else factors[0] + 2


def learned(
    core: torch.nn.Module, batch: Batch, step: Step | None, dtype: torch.dtype = torch.float64
) -> Subject:
    """A subject of a core that took a step on a batch, in a type."""
    batch = batch.to(dtype=dtype, device="cpu")
    core = core.to(dtype)
    if step is not None:
        step(State({"model": core}), batch)
    task, objective = described(core)
    return Subject(model=core, test=[batch], train=[batch], task=task, objective=objective)


def described(core: torch.nn.Module) -> tuple[object, Objective]:
    if isinstance(core, PCA | LinearAutoencoder):
        return CODES, reconstruction_error
    if isinstance(core, PPCA):
        return CODES, negative_log_density
    task = VALUES if isinstance(core, LinearRegression | Ridge | Lasso) else CLASSES
    return task, risk(task)


def moved(subject: Subject, name: str, by: float) -> Subject:
    """The subject with the first number of a parameter of its model moved."""
    other = replace(subject, model=copy.deepcopy(subject.model))
    parameter = dict(core_of(other.model).named_parameters())[name]
    with torch.no_grad():
        parameter.view(-1)[0] += by
    return other


def values_batch(rows: int, features: int, seed: int, weighted: bool, rank: int | None = None) -> Batch:
    x = numbers(rows, features, seed, rank)
    y = x[:, 0] + numbers(rows, 1, seed + 100)[:, 0]
    weight = numbers(rows, 1, seed + 200)[:, 0].abs() if weighted else None
    return Batch((x,), y, weight)


# least squares

CASES = [(30, 4, None), (6, 12, None), (30, 6, 3), (200, 20, None)]
TYPES = [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_solutions_of_least_squares_keep_every_promise(
    case: tuple, weighted: bool, seed: int, dtype: torch.dtype
) -> None:
    rows, features, rank = case
    batch = values_batch(rows, features, seed, weighted, rank)
    subject = learned(LinearRegression(features), batch, least_squares(), dtype)
    assert squares.normal_equations(subject).verdict is Verdict.HOLDS
    norm = squares.minimum_norm(subject)
    if rank is None or dtype is torch.float64:  # rounded to float32 the rows have another rank
        assert norm.verdict is Verdict.HOLDS, norm
    noise = squares.gaussian_noise(subject)
    assert noise.verdict is (Verdict.UNFOUNDED if rows <= features else Verdict.HOLDS)


def test_a_coefficient_that_is_off_breaks_each_promise() -> None:
    subject = learned(LinearRegression(4), values_batch(30, 4, 0, False), least_squares())
    off = moved(subject, "weight", 1e-3)
    assert squares.normal_equations(off).verdict is Verdict.VIOLATED
    assert squares.gaussian_noise(off).verdict is Verdict.VIOLATED
    assert squares.normal_equations(moved(subject, "bias", 1e-3)).verdict is Verdict.VIOLATED
    wide = learned(LinearRegression(12), values_batch(6, 12, 0, False), least_squares())
    longer = moved(wide, "weight", 1e-3)
    assert squares.minimum_norm(longer).verdicts[0] is Verdict.VIOLATED
    assert squares.minimum_norm(longer).verdicts[1:] == [Verdict.HOLDS] * 4


def test_one_correlated_column_among_orthogonal_ones_is_seen() -> None:
    x = torch.from_numpy(hadamard(8)).double()[:, 1:5]
    batch = Batch((x,), torch.arange(8).double().square())
    off = moved(learned(LinearRegression(4), batch, least_squares()), "weight", 0.1)
    finding = squares.normal_equations(off)
    assert finding.verdict is Verdict.VIOLATED
    assert float(finding.value) == pytest.approx(0.1 * 8 / (8**0.5 * float(batch.targets.norm())), rel=1e-9)


def test_the_penrose_identities_tell_an_inverse_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(8, 3)
    assert max(squares.penrose(x)) < 1e-12
    pinv = torch.linalg.pinv
    monkeypatch.setattr(torch.linalg, "pinv", lambda x, rtol: 1.01 * pinv(x, rtol=rtol))
    assert min(squares.penrose(x)[:2]) > 5e-3
    # a left inverse with a part that is not orthogonal: X X+ is a projector, but an oblique one
    oblique = pinv(x) + numbers(3, 8, 1) @ (torch.eye(8).double() - x @ pinv(x))
    monkeypatch.setattr(torch.linalg, "pinv", lambda x, rtol: oblique)
    found = squares.penrose(x)
    assert max(found[0], found[1], found[3]) < 1e-10
    assert found[2] > 0.1


def test_the_intervals_of_coefficients_cover_as_often_as_they_say() -> None:
    # 300 fits of 4 numbers: of 1200 intervals of 95 % each, 90.5 to 99 % cover with probability > 1 - 1e-6
    truth = torch.tensor([1.0, -2.0, 0.5, 3.0]).double()
    covered = 0
    for seed in range(300):
        x = numbers(12, 3, seed)
        y = x @ truth[:3] + truth[3] + numbers(12, 1, seed + 1000)[:, 0] - 2
        finding = squares.coefficients(learned(LinearRegression(3), Batch((x,), y), least_squares()))
        low, high = finding.interval
        covered += int(((low <= truth) & (truth <= high)).sum())
    assert 0.905 <= covered / 1200 <= 0.99
    assert finding.verdict is Verdict.MEASURED
    assert finding.labels[-1] == "intercept"


def test_coefficients_that_are_not_determined_are_unfounded() -> None:
    subject = learned(LinearRegression(12), values_batch(6, 12, 0, False), least_squares())
    finding = squares.coefficients(subject)
    assert finding.verdict is Verdict.UNFOUNDED
    assert "got 6 rows, 12 columns and a constant" in finding.premises[0].evidence


def test_a_target_of_zeros_and_a_constant_one_keep_every_promise() -> None:
    x = numbers(20, 3)
    for value in (0.0, 2.5):
        subject = learned(
            LinearRegression(3), Batch((x,), torch.full((20,), value).double()), least_squares()
        )
        assert squares.normal_equations(subject).verdict is Verdict.HOLDS
        assert squares.minimum_norm(subject).verdict is Verdict.HOLDS
        assert squares.gaussian_noise(subject).verdict is Verdict.UNFOUNDED


# penalized


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("scaling", ["mean", "sum", "undivided"])
@pytest.mark.parametrize("shape", [(30, 4), (6, 12)])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_is_stationary_for_its_own_scaling_alone(
    shape: tuple[int, int], scaling: str, dtype: torch.dtype, weighted: bool
) -> None:
    batch = values_batch(*shape, 0, weighted)
    subject = learned(Ridge(shape[1], penalty=0.3, scaling=scaling), batch, ridge(), dtype)
    assert penalized.ridge_stationarity(subject).verdict is Verdict.HOLDS
    core_of(subject.model).scaling = "sum" if scaling != "sum" else "mean"
    assert penalized.ridge_stationarity(subject).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(30, 4), (10, 25)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_lasso_keeps_its_conditions_and_its_gap(
    shape: tuple[int, int], dtype: torch.dtype, weighted: bool
) -> None:
    subject = learned(Lasso(shape[1], penalty=0.1), values_batch(*shape, 0, weighted), lasso(), dtype)
    assert penalized.lasso_conditions(subject).verdict is Verdict.HOLDS
    assert penalized.lasso_gap(subject).verdict is Verdict.HOLDS
    for by in (0.01, -0.5, 10.0):
        off = moved(subject, "weight", by)
        assert penalized.lasso_conditions(off).verdict is Verdict.VIOLATED
        assert penalized.lasso_gap(off).verdict is Verdict.HOLDS  # it holds for any weights
        assert float(penalized.lasso_gap(off).value) > 0


def test_a_gap_that_were_half_as_wide_would_be_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = penalized.duality_gap
    subject = learned(Lasso(4, penalty=50.0), values_batch(30, 4, 0, False), lasso())
    assert not core_of(subject.model).weight.any()
    off = moved(subject, "weight", 1e-9)  # near 0 under a large penalty the gap is all excess
    assert penalized.lasso_gap(off).verdict is Verdict.HOLDS
    off = moved(subject, "weight", 1.0)
    monkeypatch.setattr(penalized, "duality_gap", lambda *given: whole(*given) / 4)
    assert penalized.lasso_gap(off).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("constant", [False, True])
def test_odd_columns_and_a_constant_target_keep_every_promise(dtype: torch.dtype, constant: bool) -> None:
    batch = values_batch(20, 3, 0, False)
    x = batch.inputs[0]
    x = torch.cat((x, x[:, :1], torch.full((20, 1), 3.0).double()), 1)  # one column twice, one constant
    batch = Batch((x,), torch.full((20,), 2.5).double() if constant else batch.targets)
    squared = learned(LinearRegression(5), batch, least_squares(), dtype)
    assert squares.normal_equations(squared).verdict is Verdict.HOLDS
    assert squares.minimum_norm(squared).verdict is Verdict.HOLDS
    assert squares.coefficients(squared).verdict is Verdict.UNFOUNDED
    ridged = learned(Ridge(5), batch, ridge(), dtype)
    assert penalized.ridge_stationarity(ridged).verdict is Verdict.HOLDS
    assert penalized.ridge_stationarity(moved(ridged, "weight", 0.01)).verdict is Verdict.VIOLATED
    sparse = learned(Lasso(5), batch, lasso(), dtype)
    assert penalized.lasso_conditions(sparse).verdict is Verdict.HOLDS
    assert penalized.lasso_gap(sparse).verdict is Verdict.HOLDS
    assert penalized.lasso_conditions(moved(sparse, "weight", 0.1)).verdict is Verdict.VIOLATED


# logistic


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_at_most_the_cross_entropy_in_bits(seed: int) -> None:
    logits = 3 * numbers(50, 4, seed) - 6
    labels = torch.arange(50) % 4
    finding = logistic.surrogate(stated(logits, labels))
    assert finding.verdict in (Verdict.HOLDS, Verdict.VACUOUS)
    wrong = (logits.argmax(1) != labels).double().mean()
    bits = torch.nn.functional.cross_entropy(logits, labels) / math.log(2)
    assert float(finding.value) == pytest.approx(float(wrong))
    assert float(finding.high) == pytest.approx(float(bits))


def test_the_bound_on_the_error_is_attained_by_ties_and_the_one_in_nats_would_not_hold() -> None:
    finding = logistic.surrogate(logistic.surrogate_demo())
    assert float(finding.value) == 0.5
    assert float(finding.high) == pytest.approx(0.5, abs=1e-8)
    assert replace(finding, high=finding.high * math.log(2)).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("dtype", TYPES)
def test_softmax_regression_is_stationary(classes: int, dtype: torch.dtype) -> None:
    labels = torch.arange(60) % classes
    batch = Batch((numbers(60, 3) + labels[:, None],), labels)
    core = SoftmaxRegression(3, classes, penalty=0.01)
    subject = learned(core, batch, penalized_likelihood(), dtype)
    assert logistic.stationarity(subject).verdict is Verdict.HOLDS
    assert logistic.stationarity(moved(subject, "weight", 0.01)).verdict is Verdict.VIOLATED
    core_of(subject.model).penalty = 0.02
    assert logistic.stationarity(subject).verdict is Verdict.VIOLATED


def test_descent_on_separable_data_nears_the_largest_margin_from_below() -> None:
    x = torch.tensor([[1.0, 1], [2, 0.5], [-1, -1], [-2, 0.3]]).double()
    batch = Batch((x,), torch.tensor([1, 1, 0, 0]))
    subject = learned(LogisticRegression(2, 2), batch, None)
    assert logistic.max_margin(subject).verdict is Verdict.FAILED  # the weights are 0
    state = State({"model": subject.model})
    values, lengths, losses = [], [], []
    for _ in range(3):
        losses.append(float(logistic.long_descent(state, batch)["loss"]))
        values.append(float(logistic.max_margin(subject).value))
        lengths.append(float(torch.cat([p.flatten() for p in subject.model.parameters()]).detach().norm()))
    assert all(b > a + 0.1 for a, b in pairwise(lengths))  # without bound, as the logarithm of the steps
    assert all(b < 0.7 * a for a, b in pairwise(losses))  # the infimum 0 is not attained
    assert losses[-1] > 0
    finding = logistic.max_margin(subject)
    assert values == sorted(values)
    assert 0.9 * float(finding.high) < values[-1] < float(finding.high)
    assert finding.verdict is Verdict.MEASURED
    assert finding.scope == "limit"


def test_the_margin_of_inseparable_data_is_unfounded() -> None:
    x = torch.tensor([[0.0, 0], [1, 1], [0, 1], [1, 0]]).double()
    subject = learned(LogisticRegression(2, 2), Batch((x,), torch.tensor([0, 0, 1, 1])), None)
    finding = logistic.max_margin(moved(subject, "linear.weight", 1.0))
    assert finding.verdict is Verdict.UNFOUNDED


# components


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(40, 6), (5, 9)])
@pytest.mark.parametrize("weighted", [False, True])
def test_pca_attains_both_errors_and_a_turned_axis_does_not(
    shape: tuple[int, int], dtype: torch.dtype, weighted: bool
) -> None:
    batch = values_batch(*shape, 0, weighted)
    subject = learned(PCA(shape[1], components=3), batch, principal_components(), dtype)
    finding = pca.eckart_young(subject)
    assert finding.verdict is Verdict.HOLDS, finding
    assert finding.curves["spectrum"].shape == (min(shape),)
    assert finding.curves["components"].shape == (3, shape[1])
    assert pca.eckart_young(moved(subject, "axes", 0.3)).verdict is Verdict.VIOLATED


def test_no_autoencoder_errs_less_than_the_tail() -> None:
    batch = values_batch(40, 6, 0, False)
    for seed in range(20):
        torch.manual_seed(seed)
        subject = learned(LinearAutoencoder(6, components=2), batch, None)
        finding = pca.eckart_young(subject)
        assert finding.verdict is Verdict.HOLDS
        assert bool((finding.value > finding.low).all())
        assert pca.subspace(subject).verdict is Verdict.MEASURED
    tight = pca.eckart_young(pca.autoencoder_demo())
    assert torch.allclose(tight.value, tight.low, rtol=1e-10)


def test_the_angle_of_a_subspace_by_hand() -> None:
    rows = torch.tensor([[3.0, 0, 0], [-3, 0, 0], [0, 2, 0], [0, -2, 0], [0, 0, 1], [0, 0, -1]]).double()
    subject = learned(LinearAutoencoder(3, components=2), Batch((rows,)), None)
    turn = 0.2
    with torch.no_grad():
        columns = [[5.0, 1], [0, math.cos(turn)], [0, math.sin(turn)]]
        core_of(subject.model).decoder.weight.copy_(torch.tensor(columns, dtype=torch.float64))
    finding = pca.subspace(subject)
    assert float(finding.value) == pytest.approx(turn, rel=1e-10)
    even = learned(
        LinearAutoencoder(3, components=2), Batch((rows[[0, 1, 2, 3]] * torch.tensor([0, 1.0, 0]),)), None
    )
    assert pca.subspace(even).verdict is Verdict.UNFOUNDED  # the second eigenvalue is 0, as is the third


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_no_probabilistic_pca_is_more_likely_than_the_closed_form(dtype: torch.dtype, weighted: bool) -> None:
    batch = values_batch(40, 6, 0, weighted)
    subject = learned(PPCA(6, components=2), batch, maximum_likelihood(), dtype)
    finding = pca.likelihood(subject)
    assert finding.verdict is Verdict.HOLDS
    assert float(finding.value) == pytest.approx(float(finding.high), abs=1e-5)
    mean = (-negative_log_density(subject.model.double(), batch, torch.Generator())).detach()
    weight = torch.ones(40).double() if batch.weight is None else batch.weight
    assert float(finding.value) == pytest.approx(float((weight * mean).sum() / weight.sum()), abs=1e-5)
    for name in ("mean", "loadings", "noise_variance"):
        less = pca.likelihood(moved(subject, name, 0.5))
        assert float(less.value) < float(finding.value) - 1e-4
        assert less.verdict is Verdict.HOLDS
    torch.manual_seed(0)
    early = learned(PPCA(6, components=2), batch, expectation_maximization(iterations=3), dtype)
    assert pca.likelihood(early).verdict is Verdict.HOLDS
    broken = replace(finding, high=finding.high - 1e-3)
    assert broken.verdict is Verdict.VIOLATED


def test_a_probabilistic_pca_without_noise_fails_and_is_said_to_fall_short_of_nothing() -> None:
    subject = pca.ppca_demo()
    with torch.no_grad():
        core_of(subject.model).noise_variance.zero_()
    finding = pca.likelihood(subject)
    assert finding.verdict is Verdict.FAILED and "noise variance is 0" in finding.failure
    assert "1 direction and" in finding.statement and "short" not in finding.statement


def test_components_of_images_are_images() -> None:
    images = numbers(30, 12).reshape(30, 1, 3, 4)
    subject = learned(PCA(12, components=2), Batch((images,)), principal_components())
    assert pca.eckart_young(subject).curves["components"].shape == (2, 1, 3, 4)
    subject = learned(PPCA(12, components=2), Batch((images,)), maximum_likelihood())
    assert pca.likelihood(subject).curves["components"].shape == (2, 1, 3, 4)


# linear networks


def network(hidden: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> Subject:
    torch.manual_seed(seed)
    labels = torch.arange(40) % 3
    return learned(
        LinearNetwork(5, 3, hidden=hidden), Batch((numbers(40, 5) + labels[:, None],), labels), None, dtype
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("hidden", [(), (4,), (2,), (6, 1, 8, 7)])
def test_linear_networks_keep_every_promise(hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    subject = network(hidden, dtype)
    assert networks.closure(subject).verdict is Verdict.HOLDS
    rank = networks.rank(subject)
    assert int(rank.value) == min(3, *hidden, 3)
    assert rank.verdict is (Verdict.HOLDS)
    assert networks.shallow_flow(subject).verdict is Verdict.HOLDS
    if hidden:
        assert networks.conservation(subject).verdict is Verdict.HOLDS
    if len(hidden) == 1:
        finding = networks.modes(subject)
        assert finding.verdict is Verdict.HOLDS
        count = finding.value.numel()
        assert list(finding.curves) == [
            "time",
            *(f"{what} {i + 1}" for what in ("mode", "theory") for i in range(count)),
        ]


class Bent(LinearNetwork):
    """A network that only claims to be linear."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[1](self.layers[0](x).relu())


def test_a_nonlinearity_between_the_layers_is_seen() -> None:
    torch.manual_seed(0)
    batch = Batch((numbers(40, 5),), torch.arange(40) % 3)
    assert networks.closure(learned(Bent(5, 3, hidden=(4,)), batch, None)).verdict is Verdict.VIOLATED


def test_a_flow_that_is_no_gradients_loses_the_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = networks.flow

    def crooked(gradient, start, time, steps):
        return exact(lambda w: (gradient(w)[0] * 1.01, *gradient(w)[1:]), start, time, steps)

    monkeypatch.setattr(networks, "flow", crooked)
    assert networks.conservation(network((4,))).verdict is Verdict.VIOLATED
    assert networks.modes(network((4,))).verdict is Verdict.VIOLATED


def test_examples_of_weight_zero_count_for_nothing() -> None:
    batch = values_batch(30, 4, 0, False)
    bad = torch.cat((batch.inputs[0], torch.full((1, 4), 1e6)))
    weight = torch.cat((torch.ones(30), torch.zeros(1)))
    padded = Batch((bad,), torch.cat((batch.targets, torch.ones(1))), weight)
    plain = learned(LinearRegression(4), batch, least_squares())
    other = learned(LinearRegression(4), padded, least_squares())
    one, two = (squares.coefficients(subject) for subject in (plain, other))
    assert torch.allclose(one.value, two.value, atol=1e-10)
    assert torch.allclose(one.interval[0], two.interval[0], atol=1e-10)


def test_each_question_knows_its_model() -> None:
    batch = values_batch(30, 4, 0, False)
    cases = {
        LEAST_SQUARES.is_met: LinearRegression(4),
        RIDGE.is_met: Ridge(4),
        LASSO.is_met: Lasso(4),
        SOFTMAX.is_met: SoftmaxRegression(4, 2),
        logistic.is_binary_logistic: LogisticRegression(4, 2),
        AUTOENCODER.is_met: LinearAutoencoder(4),
        PPCA_MODEL.is_met: PPCA(4),
        networks.is_two_layer_network: LinearNetwork(4, 2),
    }
    for ask, own in cases.items():
        found = [core for core in (*cases.values(), KernelRidge(4, 30)) if ask(learned(core, batch, None))]
        assert found == [own]
    assert not logistic.is_binary_logistic(learned(LogisticRegression(4, 3), batch, None))
    assert pca.has_linear_codes(learned(PCA(4), batch, None))
    assert not networks.is_deep_linear_network(learned(LinearNetwork(4, 2, hidden=()), batch, None))
    assert isinstance(squares.normal_equations(squares.demo()), Finding)
