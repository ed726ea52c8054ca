"""A critic's number by hand: the head, the class's projection, and the best class where none is told."""

import pytest
import torch
from torch import nn

from margin.generative.gan.players import Critic, classes_in_turn


def simple(num_classes: int = 0, minibatch: int = 0) -> Critic:
    torch.manual_seed(0)
    return Critic(nn.Linear(2, 4), 4, num_classes=num_classes, minibatch=minibatch).double()


def test_it_is_an_affine_map_of_the_features() -> None:
    critic, x = simple(), torch.randn(5, 2, dtype=torch.float64)
    f = critic.network(x)
    f = torch.where(f > 0, f, 0.2 * f)
    torch.testing.assert_close(critic.features(x), f)
    torch.testing.assert_close(critic(x), f @ critic.head.weight[0] + critic.head.bias[0])


def test_each_class_adds_its_own_projection() -> None:
    critic, x = simple(num_classes=3), torch.randn(4, 2, dtype=torch.float64)
    labels = torch.tensor([2, 0, 1, 2])
    f = critic.features(x)
    plain = f @ critic.head.weight[0] + critic.head.bias[0]
    own = torch.stack([f[i] @ critic.classes.weight[k] for i, k in enumerate(labels.tolist())])
    torch.testing.assert_close(critic(x, labels), plain + own)
    of_each = torch.stack([critic(x, torch.full((4,), k)) for k in range(3)])
    torch.testing.assert_close(critic(x), of_each.amax(0))


def test_minibatch_features_join_the_head_alone() -> None:
    critic, x = simple(minibatch=2), torch.randn(4, 2, dtype=torch.float64)
    assert critic.head.in_features == 6
    assert critic.features(x).shape == (4, 4)
    together = critic(x)
    assert not torch.allclose(together[:1], critic(x[:1]))  # in training it sees the batch
    critic.eval()
    torch.testing.assert_close(critic(x)[:1], critic(x[:1]))
    with pytest.raises(ValueError, match="minibatch must be at least 0: got -1"):
        simple(minibatch=-1)


def test_classes_come_in_turn_or_all_of_one() -> None:
    cpu = torch.device("cpu")
    assert classes_in_turn(5, 3, None, cpu).tolist() == [0, 1, 2, 0, 1]
    assert classes_in_turn(3, 3, 2, cpu).tolist() == [2, 2, 2]
    assert classes_in_turn(2, 3, 0, cpu).tolist() == [0, 0]
    for label in (-1, 3):
        with pytest.raises(ValueError, match=f"label must be from 0 to 2: got {label}"):
            classes_in_turn(2, 3, label, cpu)
