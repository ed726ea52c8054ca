"""Deep ensembles: the vectorized pass is the loop over members, steps are each one's own, laws mixtures."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import margin
from margin.bayes.ensembles.deep_ensemble import DeepEnsemble, GaussianEnsemble, each
from margin.bayes.ensembles.learning import likelihood, negative_log_likelihood, side_by_side
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.engine.loop import GradientUpdate, State, descent, risk
from margin.math.probability.mixtures import LEAST, law_of
from margin.nn.preprocessed import Preprocessed


def network(outputs: int = 3, inputs: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


def rows(count: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 2, dtype=torch.float64), torch.randint(3, (count,))


def test_the_vectorized_pass_is_the_loop_over_members() -> None:
    members = nn.ModuleList(network() for _ in range(4))
    x = rows()[0]
    assert torch.allclose(each(members, x), torch.stack([m(x) for m in members]), atol=1e-14)
    own = torch.randn(4, 5, 2, dtype=torch.float64)
    expected = torch.stack([m(y) for m, y in zip(members, own, strict=True)])
    assert torch.allclose(each(members, own, own=True), expected, atol=1e-14)


def test_the_probabilities_are_the_mean_of_the_members_and_their_logarithms_are_normalized() -> None:
    model, (x, _) = DeepEnsemble(network, 3, members=4), rows()
    expected = torch.stack([m(x).softmax(1) for m in model.members]).mean(0)
    assert torch.allclose(model(x).exp(), expected, atol=1e-14)
    assert torch.allclose(model(x).softmax(1), expected, atol=1e-14)


def test_a_step_moves_every_member_as_it_would_move_by_itself() -> None:
    """By SGD at 4 times the rate, for the loss is the mean over four members."""
    ensemble = Preprocessed(
        Standardize(torch.ones(2).double(), 2 * torch.ones(2).double()), DeepEnsemble(network, 3, members=4)
    )
    x, y = rows()
    weight = torch.rand(20, dtype=torch.float64)
    alone = [Preprocessed(ensemble.preprocess, copy.deepcopy(m)) for m in ensemble.model.members]
    state = State({"model": ensemble}, {"": torch.optim.SGD(ensemble.parameters(), lr=0.4)})
    metrics = side_by_side(risk(CLASSES), GradientUpdate())(state, Batch((x,), y, weight))
    losses = []
    for member, single in zip(ensemble.model.members, alone, strict=True):
        one = State({"model": single}, {"": torch.optim.SGD(single.parameters(), lr=0.1)})
        losses.append(descent(risk(CLASSES), GradientUpdate())(one, Batch((x,), y, weight))["loss"])
        for a, b in zip(member.parameters(), single.model.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-14)
    assert float(metrics["loss"]) == pytest.approx(sum(losses) / 4, rel=1e-12)


def test_the_likelihood_is_torchs_and_members_are_not_averaged_before_it() -> None:
    outputs = torch.randn(3, 7, 2, dtype=torch.float64)
    law, y = law_of(outputs), torch.randn(7, dtype=torch.float64)
    variances = F.softplus(outputs[..., 1]) + LEAST
    assert torch.equal(law.variances, variances)
    expected = F.gaussian_nll_loss(
        outputs[..., 0], y.expand(3, 7), variances, full=True, reduction="none", eps=1e-9
    )
    assert torch.allclose(negative_log_likelihood(law, y), expected)
    assert not torch.allclose(negative_log_likelihood(law, y).mean(0), -law.log_density(y))


def test_targets_in_the_users_unit_are_learned_in_the_models() -> None:
    """y = 10 + 4 z: the gradient is that of the same model on z, and the loss is of z."""
    x = rows()[0]
    z = torch.randn(20, dtype=torch.float64)
    back = Standardize(torch.tensor(-10 / 4).double(), torch.tensor(1 / 4).double())
    made = [GaussianEnsemble(lambda: network(2), members=2)]
    made.append(copy.deepcopy(made[0]))
    models = [Preprocessed(nn.Identity(), made[0]), Preprocessed(nn.Identity(), made[1], back)]
    found = []
    for model, y in zip(models, (z, 10 + 4 * z), strict=True):
        state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})
        found.append(likelihood(GradientUpdate())(state, Batch((x,), y)))
    for a, b in zip(*(m.model.parameters() for m in models), strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    assert float(found[0]["loss"]) == pytest.approx(float(found[1]["loss"]), rel=1e-9)
    assert torch.allclose(10 + 4 * models[0](x), models[1](x))


def test_one_member_and_batch_normalization_are_refused() -> None:
    with pytest.raises(ValueError, match="members must be at least 2: got 1"):
        DeepEnsemble(network, 3, members=1)
    with pytest.raises(ValueError, match="got BatchNorm1d; layer normalization does"):
        DeepEnsemble(lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), 3)


def test_the_recipe_of_the_base_is_recorded_and_a_run_is_rebuilt_from_it(tmp_path) -> None:
    options = {"base": "residual_mlp", "base_options": {"depth": 2}, "members": 3}
    run = margin.train("ensemble", "iris", options, epochs=2, out=tmp_path / "run")
    recipe = run.record["recipe"]["spec"]["builder"]
    assert recipe["model"] == "feedforward/residual_mlp"
    assert recipe["spec"] == {"in_features": 4, "num_classes": 3}
    assert recipe["options"]["depth"] == 2
    assert len(margin.load(run).model.members) == 3
    for wrong, message in (
        ({"base": "ridge"}, "the base must be a model of classes: got classic/ridge"),
        ({"base": "lenet5"}, "the base vision/lenet5 needs"),
        ({"base_options": {"depht": 3}}, "the base feedforward/mlp has no option 'depht'"),
    ):
        with pytest.raises(ValueError, match=message):
            margin.train("ensemble", "iris", wrong, epochs=1, out=tmp_path / "refused")


def test_every_member_learns_by_its_own_likelihood() -> None:
    torch.manual_seed(0)
    model = GaussianEnsemble(lambda: nn.Linear(3, 2), members=3)
    x, y = torch.randn(8, 3), torch.randn(8)

    expected = []
    for member in model.members:
        mean, variance = member(x)[:, 0], F.softplus(member(x)[:, 1]) + 1e-6
        own = -torch.distributions.Normal(mean, variance.sqrt()).log_prob(y).mean()
        expected.append(member.weight.detach() - torch.autograd.grad(own / 3, member.weight)[0])
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1.0)})
    likelihood(GradientUpdate())(state, Batch((x,), y))
    for member, weight in zip(model.members, expected, strict=True):
        assert torch.allclose(member.weight, weight, rtol=1e-4, atol=1e-6)
