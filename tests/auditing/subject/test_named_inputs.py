"""Data by name: a dict, or a loader of dicts, is read as ``forward`` names its inputs."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from margin.auditing.subject.subjects import alike, subject_of

N = 12
TOKENS = torch.arange(4 * N).reshape(N, 4) % 7
MASK = (TOKENS > 1).long()
LABELS = TOKENS[:, 0].remainder(2)


class Net(nn.Module):
    """The second parameter is in the middle, and not in the data: by position a mask would take its place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 2)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        if labels is not None or token_type_ids is not None or attention_mask is None:
            raise TypeError("forward is given ids and mask alone")
        seen = self.table(input_ids) * attention_mask[..., None]
        return {"logits": seen.sum(1) - 1.5}


def logits(net: Net) -> Tensor:
    return (net.table.weight[TOKENS] * MASK[..., None]).sum(1) - 1.5


GIVEN = {"attention_mask": MASK, "labels": LABELS, "input_ids": TOKENS}


def rows(given: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    return [{name: column[i] for name, column in given.items()} for i in range(N)]


FORMS: dict[str, Callable[[], Any]] = {
    "dict": lambda: GIVEN,
    "arrays": lambda: {name: column.numpy() for name, column in GIVEN.items()},
    "loader": lambda: DataLoader(rows(GIVEN), batch_size=5),  # type: ignore[arg-type]
    "with an index": lambda: {"idx": torch.arange(N), **GIVEN},
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_are_given_by_name(form: str) -> None:
    net = Net()
    subject = subject_of(net, FORMS[form](), train=GIVEN)
    assert [len(x) for batch in subject.test for x in batch.inputs[:1]] == (
        [5, 5, 2] if form == "loader" else [N]
    )
    out = torch.cat([subject.model(*batch.inputs) for batch in subject.test])
    torch.testing.assert_close(out, logits(net))
    assert torch.equal(
        torch.cat([batch.targets for batch in subject.test if batch.targets is not None]), LABELS
    )
    left = "; left out: idx" if form == "with an index" else ""
    assert f"data by name: inputs input_ids, attention_mask, target labels{left}" in subject.assumed


def test_another_module_is_asked_in_the_same_way() -> None:
    other, subject = Net(), subject_of(Net(), GIVEN)
    torch.testing.assert_close(alike(subject.model, other)(*subject.test[0].inputs), logits(other))


def test_a_module_that_takes_any_name_is_given_all_tensors() -> None:
    class Greedy(nn.Module):
        def forward(self, **named: Tensor) -> Tensor:
            assert set(named) == {"a", "b"}
            return torch.stack([named["a"], 2 * named["b"]], 1)

    a, b = torch.randn(N), torch.randn(N)
    text = ["no tensor"] * N
    subject = subject_of(Greedy(), {"b": b, "a": a, "text": text, "label": LABELS})
    assert torch.equal(subject.model(*subject.test[0].inputs), torch.stack([a, 2 * b], 1))


@pytest.mark.parametrize(
    ("test", "train", "message"),
    [
        (
            {"input_ids": TOKENS},
            None,
            "the target must have one of the names labels, label, targets, target, y",
        ),
        ({"x": TOKENS, "labels": LABELS}, None, "forward of Net takes none of x, labels as an input"),
        (
            GIVEN,
            {"input_ids": TOKENS, "labels": LABELS},
            "the training data must have the names of the data before",
        ),
        (
            GIVEN,
            {"attention_mask": MASK, "input_ids": TOKENS, "target": LABELS},
            "names of the data before, input_ids, attention_mask, labels",
        ),
        (
            GIVEN,
            DataLoader(list(zip(TOKENS, LABELS, strict=True))),
            "batch 0 must be a dict, as the data before: got",
        ),  # type: ignore[arg-type]
    ],
)
def test_names_that_do_not_fit(test: Any, train: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subject_of(Net(), test, train=train)
