"""Flow matching of points as entries: they learn, sample and say a density."""

from typing import Any

import pytest
import torch
from torch import Generator

from margin import Training, load, train
from margin.data.sets.tiny import tables as tiny
from margin.nn.preprocessed import core_of, features_of


@pytest.mark.parametrize("name", ["flow_matching", "conditional_flow_matching"])
def test_it_learns(name: str, tmp_path: object) -> None:
    """A network of 0 costs E|x_1|^2 + d; now .9 of it at most (of Gaussian data pi / 4 is the least)."""
    training = Training(max_steps=150, lr=5e-3, batch_size=24, threads=1, average=0.9, evaluate_every=150)
    run = train(
        f"generative/{name}", tiny.moons(), {"hidden": 32, "depth": 1}, training, out=f"{tmp_path}/run"
    )
    model, part = load(run), tiny.moons().splits["train"]
    core: Any = core_of(model)
    x = features_of(model, part.inputs[0].to(core.place))
    label = part.targets if core.num_classes else None
    with torch.no_grad():
        cost = core.loss(
            x.repeat(200, 1), Generator().manual_seed(0), None if label is None else label.repeat(200)
        )
        assert float(cost.mean()) < 0.9 * (float(x.square().sum(1).mean()) + 2)
        assert core.sample(8, generator=Generator().manual_seed(0)).shape == (8, 2)
