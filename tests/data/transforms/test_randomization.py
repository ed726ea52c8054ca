"""Randomization: which part is changed, the law of the labels, and that a training goes on with the same."""

from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from torch import Generator

import margin
from margin import Training
from margin.data.open import encode, open_data
from margin.runs.training import finish, open_source, prepare
from margin.testing import check_same_run


def images(part):
    return part.take(torch.arange(len(part)), Generator()).inputs[0]


def labels(part):
    return part.take(torch.arange(len(part)), Generator()).targets


@pytest.fixture(scope="module")
def plain():
    return open_data("digits", {})


def test_labels_are_drawn_for_the_training_part_alone(plain) -> None:
    """Uniform over ten classes and independent of the given ones: chi-squared, each below 1e-4."""
    data = open_data("digits", {"labels": "random"})
    drawn, given = labels(data.splits["train"]), labels(plain.splits["train"])
    assert torch.equal(drawn, data.splits["train"].targets)
    assert chisquare(torch.bincount(drawn, minlength=10).numpy()).pvalue > 1e-4
    hits = int((drawn == given).sum())
    assert abs(hits - len(drawn) / 10) < 4 * (len(drawn) * 0.09) ** 0.5
    for part in ("val", "test"):
        assert torch.equal(labels(data.splits[part]), labels(plain.splits[part]))
    for part in data.splits:
        assert torch.equal(images(data.splits[part]), images(plain.splits[part]))
    assert data.fingerprint != plain.fingerprint
    assert "labels of the training part are drawn at random" in data.notes[-1]
    other = open_data("digits", {"labels": "random", "random_seed": 1})
    assert not torch.equal(labels(other.splits["train"]), drawn)
    assert other.fingerprint != data.fingerprint
    assert data.encoding == plain.encoding


def test_shuffled_pixels_are_one_permutation_of_all_parts(plain) -> None:
    data = open_data("digits", {"pixels": "shuffled"})
    before, after = (torch.cat([images(d.splits[p]) for p in d.splits]).flatten(1) for d in (plain, data))
    # columns are told apart by their values over all images; equal ones may change places
    columns = {tuple(column.tolist()) for column in before.T}
    assert {tuple(column.tolist()) for column in after.T} == columns
    assert not torch.equal(before, after)
    one = open_data("digits", {}).splits["train"].take(torch.tensor([5]), Generator()).inputs[0]
    same = data.splits["train"].take(torch.tensor([5]), Generator()).inputs[0]
    assert torch.equal(one.flatten().sort().values, same.flatten().sort().values)


def test_random_pixels_are_a_permutation_of_each_training_image(plain) -> None:
    data = open_data("digits", {"pixels": "random"})
    before, after = images(plain.splits["train"]).flatten(1), images(data.splits["train"]).flatten(1)
    assert torch.equal(before.sort(1).values, after.sort(1).values)
    columns = {tuple(column.tolist()) for column in before.T}
    assert len({tuple(column.tolist()) for column in after.T} & columns) <= 1
    assert torch.equal(images(data.splits["test"]), images(plain.splits["test"]))
    again = data.splits["train"].take(torch.tensor([7, 3]), Generator().manual_seed(9)).inputs[0]
    assert torch.equal(again.flatten(1), after[[7, 3]])


def test_noise_has_the_moments_of_the_images(plain) -> None:
    data = open_data("digits", {"pixels": "noise"})
    x, y = images(plain.splits["train"]), images(data.splits["train"])
    n = x.numel()
    assert abs(float(y.mean() - x.mean())) < 0.1 + 4 * float(x.std()) / n**0.5
    assert abs(float(y.std() / x.std()) - 1) < 0.03
    assert len(y.unique()) > 0.9 * y.numel()
    assert torch.equal(images(data.splits["test"]), images(plain.splits["test"]))


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("diabetes", {"labels": "random"}, "random labels need one class an example: diabetes"),
        ("iris", {"pixels": "shuffled"}, r"pixels are those of images: iris has inputs of shape \(4,\)"),
        ("digits", {"labels": "permuted"}, "labels must be"),
    ],
)
def test_what_cannot_be_randomized_is_refused(source: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_data(source, options)


def test_a_run_on_random_labels_resumes_and_is_audited_on_the_given_ones(tmp_path: Path) -> None:
    options = {"labels": "random", "pixels": "random"}
    arguments = {"options": {}, "step": {}, "rule": ""}
    runs = []
    for name, epochs in (("a", 3), ("b", 1)):
        training = Training(epochs=epochs, seed=1, checkpoint_every=1)
        data = open_source("digits", options)
        runs.append(finish(prepare("mlp", data, arguments, training, tmp_path / name)))
    first, half = runs
    margin.resume(half, training=Training(epochs=3))
    check_same_run(first, half)
    assert first.record["arguments"]["data"]["options"] == options
    assert torch.equal(
        encode("digits", first.record["data"]["encoding"]).targets,
        labels(open_data("digits", {}).splits["test"]),
    )


def test_arrays_of_a_user_are_randomized_too() -> None:
    x, y = torch.rand(60, 3), torch.arange(60) % 3
    data = open_data((x.numpy(), y.numpy()), {"labels": "random"})
    assert data.encoding["options"] == {"labels": "random"}
    assert len(data.splits["train"].targets) == len(data.splits["train"])
