"""A weight that is computed and kept is told of before a question tries to copy it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from margin.auditing.subject.subjects import subject_of


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("kind", ["pruned", "weight_norm"])
def test_a_weight_that_is_computed_and_kept_is_refused_before_it_cannot_be_copied(kind, asked):
    model = nn.Sequential(nn.Linear(4, 3))
    if kind == "pruned":
        prune.l1_unstructured(model[0], "weight", amount=0.5)
    else:
        with pytest.warns(FutureWarning):
            torch.nn.utils.weight_norm(model[0])
    x, labels = torch.randn(6, 4), torch.arange(6) % 3
    if asked:
        with torch.no_grad():  # which leaves a weight that could be copied until a gradient is asked
            model(x)
    with pytest.raises(ValueError, match=r"the weights of the model must be its parameters: 0\.weight is"):
        subject_of(model, (x, labels))
    if kind == "pruned":
        prune.remove(model[0], "weight")
    else:
        torch.nn.utils.remove_weight_norm(model[0])
    assert subject_of(model, (x, labels)).model is model
