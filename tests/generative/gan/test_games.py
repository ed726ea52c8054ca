"""What the players lose on a batch, by hand; and what is refused of a batch."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.types import Batch
from margin.engine.loop import State
from margin.generative.gan.conv_gan import images
from margin.generative.gan.games import CERTAIN, Game, Terms, check_bounds
from margin.generative.gan.model import conditional_points, points
from margin.nn.preprocessed import Preprocessed


def state(core: nn.Module) -> State:
    return State({"model": Preprocessed(nn.Identity(), core)})


def terms(n: int = 6, labels: Tensor | None = None, weight: Tensor | None = None) -> Terms:
    return Terms(torch.randn(n, 2, generator=Generator().manual_seed(0)).double(), labels, weight)


def model(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return points(2, hidden=(8,), **options).double()


def test_the_critics_loss_is_that_of_its_numbers() -> None:
    core, given = model(), terms()
    fake = Game("minimax").fakes(core, given, Generator().manual_seed(1))
    real, false = core(given.x), core(fake)
    loss, said = Game("minimax").critic_loss(core, given, fake, Generator())
    torch.testing.assert_close(loss, -(real.sigmoid().log() + (1 - false.sigmoid()).log()).mean())
    torch.testing.assert_close(said["generator_loss"], (1 - false.sigmoid()).log().mean().detach())
    loss, said = Game("wasserstein").critic_loss(core, given, fake, Generator())
    torch.testing.assert_close(loss, false.mean() - real.mean())
    torch.testing.assert_close(said["gap"], -loss.detach())
    assert "won" not in said


def test_examples_count_by_their_weight() -> None:
    """An example of weight 2 is two examples, and one of weight 0 none; so is the sample beside it."""
    core, given = model(), terms()
    weight = torch.tensor([2.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    fake = torch.randn(6, 2, generator=Generator().manual_seed(2), dtype=torch.float64)
    index = torch.tensor([0, 0, 2, 3, 4, 5])
    for game in (
        Game("nonsaturating"),
        Game("wasserstein", penalty=3.0, where="data"),
        Game("nonsaturating", matching=True),
    ):
        counted, said = game.critic_loss(core, given._replace(weight=weight), fake, Generator())
        repeated, same = game.critic_loss(core, given._replace(x=given.x[index]), fake[index], Generator())
        torch.testing.assert_close(counted, repeated)
        if not game.matching:  # the samples that are matched are draws of one law: each counts
            torch.testing.assert_close(said, same)
    game = Game("nonsaturating")
    counted = game.generator_loss(core, given._replace(weight=weight), fake)
    torch.testing.assert_close(counted, game.generator_loss(core, given, fake[index]))


def test_padding_is_not_said_of_the_game() -> None:
    """Rows of weight 0 that the discriminator gets wrong, be they NaN: it has won on all that count."""
    real, fake = torch.tensor([5.0, math.nan, -9.0]), torch.tensor([-5.0, 9.0, math.nan])
    said = Game("minimax").said(real, fake, torch.tensor([1.0, 0.0, 0.0]))
    assert said == {"accuracy": 1.0, "won": 1.0}
    assert Game("wasserstein").said(real, fake, torch.tensor([2.0, 0.0, 0.0])) == {"gap": 10.0}


def test_the_penalty_is_added_where_it_is_asked() -> None:
    core, given = model(), terms()
    fake = torch.randn(6, 2, generator=Generator().manual_seed(2), dtype=torch.float64)
    bare, _ = Game("wasserstein").critic_loss(core, given, fake, Generator())
    x = given.x.clone().requires_grad_()
    norm = torch.autograd.grad(core(x).sum(), x)[0].norm(dim=1)
    at_data, said = Game("wasserstein", penalty=5.0, where="data").critic_loss(core, given, fake, Generator())
    torch.testing.assert_close(at_data - bare, 5 * norm.square().mean())
    torch.testing.assert_close(said["slope"], norm.mean())
    same = Game("wasserstein", penalty=5.0)
    between, _ = same.critic_loss(core, given, given.x, Generator())  # every segment is its own end
    torch.testing.assert_close(between, 5 * (norm - 1).square().mean())


def test_the_generator_matches_features() -> None:
    core, given = model(), terms()
    fake = torch.randn(6, 2, generator=Generator().manual_seed(2), dtype=torch.float64)
    got = Game("nonsaturating", matching=True).generator_loss(core, given, fake)
    features = core.critic.features
    torch.testing.assert_close(got, (features(given.x).mean(0) - features(fake).mean(0)).square().sum())
    torch.testing.assert_close(
        Game("minimax").generator_loss(core, given, fake), (1 - core(fake).sigmoid()).log().mean()
    )


@pytest.mark.parametrize(
    ("real", "fake", "accuracy", "won"),
    [
        ([4.7, 4.7], [-4.7, -4.7], 1.0, 1.0),  # log 99 = 4.595
        ([4.5, 4.5], [-4.5, -4.5], 1.0, 0.0),
        ([9.0, 9.0], [-9.0, 0.1], 0.75, 0.0),
        ([0.0, 1.0], [0.0, 1.0], 0.25, 0.0),  # 0 tells nothing
        ([math.nan, 1.0], [-1.0, math.nan], 0.5, 0.0),
    ],
)
def test_it_is_said_when_the_discriminator_has_won(
    real: list[float], fake: list[float], accuracy: float, won: float
) -> None:
    said = Game("nonsaturating").said(torch.tensor(real), torch.tensor(fake))
    assert float(said["accuracy"]) == accuracy
    assert float(said["won"]) == won
    assert pytest.approx(-math.log(0.99)) == CERTAIN


def test_a_batch_without_labels_has_no_classes_to_tell() -> None:
    core = conditional_points(2, 3, hidden=(8,))
    x = torch.randn(4, 2)
    for targets in (None, torch.randn(4)):
        with pytest.raises(ValueError, match="needs class labels: the data have none"):
            Game("minimax").terms(state(core), Batch((x,), targets))
    labels = torch.tensor([0, 2, 1, 0])
    found = Game("minimax").terms(state(core), Batch((x,), labels))
    assert torch.equal(found.labels, labels)
    assert Game("minimax").terms(state(points(2)), Batch((x,), labels)).labels is None
    fake = Game("minimax").fakes(core, found, Generator().manual_seed(0))
    z = core.generator.draw(4, Generator().manual_seed(0))
    torch.testing.assert_close(fake, core.generator(z, labels))  # of the same classes


def test_pixels_outside_the_generators_range_are_refused_with_the_option() -> None:
    core = images(1, (4, 4), width=4, features=8)
    x = torch.linspace(-0.42, 2.8, 32).reshape(2, 1, 4, 4)
    with pytest.raises(
        ValueError,
        match=r"generator needs inputs in \[-1, 1\]: got from -0.42 to 2.8; train with --scale symmetric",
    ):
        Game("minimax").terms(state(core), Batch((x,)))
    with pytest.raises(ValueError, match="got from nan to nan"):
        check_bounds(x * math.nan, (-1.0, 1.0))
    check_bounds(torch.tensor([-1.0, 1.0]), (-1.0, 1.0))
    check_bounds(1e9 * x, None)


def test_samples_take_the_shape_of_the_data() -> None:
    x = torch.randn(3, 2, 2)
    fake = Game("minimax").fakes(points(4), Terms(x, None, None), Generator().manual_seed(0))
    assert fake.shape == (3, 2, 2)
