"""Transfer: what is taken over and what is left, what stays frozen, how fast each layer learns."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, State, descent, fit, risk
from margin.engine.transfer import freeze, layer_rates, transfer
from margin.feedforward.mlp.model import MLP


class Net(nn.Module):
    """Features with batch normalization and dropout, then a head."""

    def __init__(self, classes=3, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.features = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6)
        )
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(self.features(x))


def batch(n=32, seed=0):
    generator = Generator().manual_seed(seed)
    return Batch(
        (1 + 2 * torch.randn(n, 4, generator=generator),), torch.randint(0, 3, (n,), generator=generator)
    )


def trained(model, steps=5, **options):
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1
    )
    state = State({"model": model}, {"": optimizer})
    fit(state, lambda t: batch(seed=t), descent(risk(CLASSES), GradientUpdate()), max_steps=steps)
    return model


def test_what_fits_by_name_and_shape_is_taken_over_and_the_rest_named():
    source, model = trained(Net()), Net(classes=5, seed=1)
    head = copy.deepcopy(model.head)
    for given in (source, source.state_dict()):
        report = transfer(model, given)
        for name, x in model.features.state_dict().items():
            assert torch.equal(x, source.features.state_dict()[name]), name
        assert torch.equal(model.head.weight, head.weight)
        assert report.left == {
            "head.weight": "of shape (5, 6), in the source (3, 6)",
            "head.bias": "of shape (5,), in the source (3,)",
        }
        assert report.unused == ("head.weight", "head.bias")
        assert set(report.taken) == {f"features.{name}" for name in model.features.state_dict()}
        assert str(report).startswith("9 tensors taken over, 2 left (head.weight: of shape (5, 6)")


def test_the_source_is_copied_not_shared_and_types_are_kept():
    source, model = Net(), Net(seed=1).double()
    before = model.features[0].weight
    transfer(model, source)
    assert model.features[0].weight is before and before.dtype == torch.float64 and before.requires_grad
    source.features[0].weight.data.zero_()
    assert before.abs().max() > 0


def test_tensors_that_the_source_lacks_are_left():
    state = Net().state_dict()
    del state["features.0.weight"]
    report = transfer(Net(seed=1), state | {"extra": torch.zeros(2)})
    assert report.left == {"features.0.weight": "the source has no such tensor"}
    assert report.unused == ("extra",)


def test_nothing_that_fits_is_refused_a_counter_is_no_weight():
    model = Net(classes=5)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        ValueError, match=r"no weight of the source fits.*the source has model\.features\.0\.weight"
    ):
        transfer(model, {f"model.{name}": x for name, x in Net().state_dict().items()})
    with pytest.raises(ValueError, match="no weight of the source fits"):
        transfer(model, {"features.1.num_batches_tracked": torch.tensor(3)})
    with pytest.raises(ValueError, match="the source has nothing"):
        transfer(model, {})
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in before.items())


def test_frozen_weights_and_statistics_do_not_move_and_the_rest_learns():
    model = Net()
    trained(model, 3)
    names = freeze(model, ["features"])
    before = copy.deepcopy(model.state_dict())
    assert set(names) == {name for name, _ in model.named_parameters() if name.startswith("features")}
    trained(model, 5)
    after = model.state_dict()
    for name, x in before.items():
        assert torch.equal(x, after[name]) == name.startswith("features"), name


def test_without_evaluation_mode_the_statistics_of_frozen_parameters_would_move():
    model = Net()
    for parameter in model.features.parameters():
        parameter.requires_grad_(False)
    before = model.features[1].running_mean.clone()
    trained(model, 1)
    assert not torch.equal(model.features[1].running_mean, before)


def test_a_frozen_part_computes_as_it_is_used_whatever_mode_the_model_is_in():
    model = Net()
    trained(model, 3)
    freeze(model, ["features"])
    x = batch().inputs[0]
    at_work = model.train().features(x)
    assert torch.equal(at_work, model.eval().features(x))  # neither dropout nor batch statistics
    assert model.train().training and model.head.training
    copied = copy.deepcopy(model).train()  # as the moving average of the weights is made
    assert torch.equal(copied.features(x), at_work)
    assert copied.features[1].num_batches_tracked == model.features[1].num_batches_tracked


def test_one_layer_or_one_tensor_may_be_frozen():
    model = Net()
    assert freeze(model, ["features.0", "head.bias"]) == ("features.0.weight", "features.0.bias", "head.bias")
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == [
        "features.0.weight",
        "features.0.bias",
        "head.bias",
    ]
    before = model.features[1].num_batches_tracked.clone()
    model.train()(batch().inputs[0])
    assert model.features[1].num_batches_tracked == before + 1  # not frozen
    assert freeze(Net(), ["features.1"]) == ("features.1.weight", "features.1.bias")


def test_a_prefix_ends_at_a_dot():
    model = nn.ModuleDict({"conv": nn.Linear(2, 2), "conv2": nn.Linear(2, 2)})
    assert freeze(model, ["conv"]) == ("conv.weight", "conv.bias")


def test_unknown_parts_and_freezing_all_are_refused_with_nothing_changed():
    model = Net()
    with pytest.raises(ValueError, match="must name parts of the model: got 'feature'; nearest: features"):
        freeze(model, ["head", "feature"])
    with pytest.raises(ValueError, match="got 'zzz'; nearest: features, head"):
        freeze(model, ["zzz"])
    with pytest.raises(ValueError, match=r"leave a parameter to train: features, head cover all 8"):
        freeze(model, ["features", "head"])
    assert all(p.requires_grad for p in model.parameters())


def rates(model, decay=0.5):
    names = {id(p): name for name, p in model.named_parameters()}
    return [(sorted(names[id(p)] for p in layer), factor) for layer, factor in layer_rates(model, decay)]


def test_each_layer_learns_by_a_factor_slower_than_the_one_after_it():
    assert rates(Net(), 1 / 2.6) == [
        (["head.bias", "head.weight"], 1.0),
        (["features.4.bias", "features.4.weight"], pytest.approx(1 / 2.6)),
        # a normalization goes with the layer before it
        (
            ["features.0.bias", "features.0.weight", "features.1.bias", "features.1.weight"],
            pytest.approx(2.6**-2),
        ),
    ]
    mlp = MLP(4, 3, hidden=(8, 8))
    assert [factor for _, factor in layer_rates(mlp, 0.5)] == [1.0, 0.5, 0.25]
    assert {factor for _, factor in layer_rates(mlp, 1.0)} == {1.0}


def test_a_model_around_a_model_has_the_layers_of_that_model():
    around = nn.Module()
    around.preprocess, around.model = nn.Identity(), Net()
    inner = {id(p): name for name, p in around.model.named_parameters()}
    named = [(sorted(inner[id(p)] for p in layer), factor) for layer, factor in layer_rates(around, 0.5)]
    assert named == rates(Net())
    assert len(named) == 3


def test_frozen_layers_are_skipped_and_do_not_count():
    model = Net()
    freeze(model, ["features.4", "features.0.weight"])
    assert rates(model) == [
        (["head.bias", "head.weight"], 1.0),
        (["features.0.bias", "features.1.bias", "features.1.weight"], 0.5),
    ]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.norm = (
            nn.Embedding(5, 4),
            nn.ModuleList([Block(), Block()]),
            nn.LayerNorm(4),
        )


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(4, 5)
        self.head.weight = self.encoder.embed.weight


def test_a_block_is_one_layer_and_a_shared_weight_belongs_to_the_first():
    found = rates(Tied())
    assert [factor for _, factor in found] == [1.0, 0.5, 0.25, 0.125]
    assert found[0][0] == ["head.bias"]
    assert all(name.startswith(("encoder.blocks.1", "encoder.norm")) for name in found[1][0])
    assert len(found[1][0]) == 6
    assert found[3][0] == ["encoder.embed.weight"]
    model = Tied()
    assert sorted(id(p) for layer, _ in layer_rates(model, 0.5) for p in layer) == sorted(
        map(id, model.parameters())
    )


def test_bad_decays_and_frozen_models_are_refused():
    for decay in (0.0, -1.0, 2.6, float("nan")):
        with pytest.raises(ValueError, match=r"decay must be in \(0, 1\]"):
            layer_rates(Net(), decay)
    with pytest.raises(ValueError, match="every one is frozen"):
        layer_rates(Net().requires_grad_(False), 0.5)


@pytest.fixture(scope="module")
def paired():
    """With few labels: accuracy from a pretrained encoder less that from scratch, 5 paired seeds."""
    gaps = []
    for seed in range(5):
        generator = Generator().manual_seed(seed)
        loading = 0.35 * torch.randn(2, 100, generator=generator)

        def draw(count, generator=generator, loading=loading):
            z = torch.randn(count, 2, generator=generator)
            x = z @ loading + torch.randn(count, 100, generator=generator)
            return x, (z[:, 0] > 0).long()

        unlabeled, (few, labels), (held, truth) = draw(800)[0], draw(12), draw(1000)
        torch.manual_seed(seed)
        code = nn.Linear(100, 2)
        decoder = nn.Linear(2, 100)
        optimizer = torch.optim.Adam([*code.parameters(), *decoder.parameters()], lr=0.05)
        for _ in range(120):
            loss = (decoder(code(unlabeled)) - unlabeled).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        pretrained = nn.Sequential(code, decoder)
        accuracies = []
        for reuse in (False, True):
            torch.manual_seed(seed + 100)
            model = nn.Sequential(nn.Linear(100, 2), nn.Linear(2, 2))
            if reuse:
                transfer(model, pretrained)
                freeze(model, ["0"])
            optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
            for _ in range(150):
                loss = F.cross_entropy(model(few), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            accuracies.append((model(held).argmax(1) == truth).double().mean().item())
        gaps.append(accuracies[1] - accuracies[0])
    return torch.tensor(gaps)


def test_with_few_labels_a_pretrained_encoder_beats_scratch(paired):
    """An autoencoder of unlabeled data, its encoder kept, a head on 12 labels; the t interval excludes 0."""
    half = 2.776 * paired.std() / 5**0.5
    assert paired.mean() - half > 0


def test_a_part_without_weights_cannot_be_frozen() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    with pytest.raises(ValueError, match="must name parts with weights: got '0', a Flatten without any"):
        freeze(model, ["0"])
    assert freeze(model, ["2"]) == ()  # its running statistics stay
    before = model[2].running_mean.clone()
    model.train()(torch.randn(8, 4))
    assert torch.equal(model[2].running_mean, before)
