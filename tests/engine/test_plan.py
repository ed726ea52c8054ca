"""The plan: whose step it takes, and the targets that a model refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from margin.classic.perceptron.model import mistake_rule
from margin.core.catalog import completed, models, resolve
from margin.core.options import Training
from margin.data.examples import evaluation_batch
from margin.data.sampling.length_batches import BySimilarLength
from margin.data.sets.tiny.graphs import graphs, nodes
from margin.data.sets.tiny.sequences import classes as sequences
from margin.data.sets.tiny.sequences import ragged_classes, tokens
from margin.data.sets.tiny.tables import classes, sides, values
from margin.engine.check_options import alternatives, check_task, reading_of
from margin.engine.loop import descent
from margin.engine.plan import cut_of, factory_of
from margin.robust.training.adversarial import adversarial_training
from margin.runs.training import prepare
from margin.runs.verbs import train

ENTRIES = models()


def test_the_step_is_the_rules_then_the_entrys_then_descent() -> None:
    mlp, perceptron = ENTRIES["feedforward/mlp"], ENTRIES["classic/perceptron"]
    assert factory_of(mlp, "") is descent
    assert factory_of(perceptron, "") is mistake_rule
    assert factory_of(mlp, "adversarial_training") is adversarial_training
    assert factory_of(replace(mlp, step=perceptron.step), "adversarial_training") is adversarial_training


def test_a_rule_needs_a_model_that_gradients_train() -> None:
    with pytest.raises(ValueError, match=r"needs a model trained by gradients: classic/perceptron is not"):
        factory_of(ENTRIES["classic/perceptron"], "adversarial_training")
    with pytest.raises(ValueError, match="unknown rule 'nothing'"):
        factory_of(ENTRIES["feedforward/mlp"], "nothing")


def test_targets_of_the_other_kind_are_refused() -> None:
    kinds = {"classes": replace(classes(), encoding={"task": "classes"})}
    kinds["values"] = replace(values(), encoding={"task": "values"})
    takers = {"classes": ("feedforward/mlp", "classic/perceptron"), "values": ("classic/linear_regression",)}
    for kind, names in takers.items():
        other = "values" if kind == "classes" else "classes"
        for name in names:
            check_task(ENTRIES[name], kinds[kind])
            with pytest.raises(ValueError, match=f"{name} needs {kind} as targets: those of .* are {other}"):
                check_task(ENTRIES[name], kinds[other])
    check_task(ENTRIES["classic/perceptron"], replace(sides(), encoding={}))


def test_the_models_that_fit_are_named_those_of_the_family_first() -> None:
    data = replace(values(), encoding={"task": "values"})
    fitting = list(alternatives(ENTRIES["feedforward/mlp"], data))
    assert fitting[:2] == ["feedforward/mlp:values", "feedforward/sigmoid_net"]
    assert "classic/ridge" in fitting
    assert "feedforward/pwl_interpolant" not in fitting  # of one feature alone
    assert not {"feedforward/mlp", "sequence/gru_regressor", "generative/gan", "classic/pca"} & set(fitting)
    message = "those of .* are values; models that fit: feedforward/mlp:values, feedforward/sigmoid_net, "
    with pytest.raises(ValueError, match=message):
        check_task(ENTRIES["feedforward/mlp"], data)
    many = replace(classes(), encoding={"task": "classes"})
    assert many.spec["num_classes"] > 2
    fitting = list(alternatives(ENTRIES["classic/linear_regression"], many))
    assert fitting[0] == "classic/logistic_regression"
    assert "classic/perceptron" not in fitting  # of two classes alone


WHOLE = [name for name, entry in ENTRIES.items() if entry.whole]


@pytest.mark.parametrize("name", WHOLE)
def test_a_step_that_needs_all_examples_refuses_a_part_of_them(name: str, tmp_path: Path) -> None:
    """An exact solve would keep the last batch's answer, a rule would stop after a batch without mistakes."""
    data = resolve(ENTRIES[name].tiny)()
    entry = ENTRIES[name]
    options = completed(resolve(entry.build), {})
    count = len(cut_of(entry, options)(data.splits["train"]))  # of a text the entries of a matrix
    with pytest.raises(ValueError) as caught:
        train(name, data, training=Training(batch_size=2), out=tmp_path / "run")
    assert str(caught.value) == f"{name} takes all {count} examples at once: set batch_size all, got 2"
    assert not (tmp_path / "run").exists()
    train(name, data, training=Training(batch_size=count, max_steps=1), out=tmp_path / "run")


def test_exact_solves_and_mistake_rules_need_all_examples() -> None:
    assert {"classic/linear_regression", "classic/ridge", "classic/pca", "classic/perceptron"} <= set(WHOLE)
    assert "classic/lms" not in WHOLE


@pytest.mark.parametrize(
    ("entry", "data", "message"),
    [
        (
            "sequence/gru",
            values(),
            "needs sequences: an example of noisy-linear has 3 features; read a file of",
        ),
        (
            "sequence/gru:tokens",
            sequences(),
            "needs tokens: .* has sequences; read a file of them as text:FILE",
        ),
        (
            "sequence/wavenet",
            replace(sequences(), encoding={**sequences().encoding, "format": "audio"}),
            "needs tokens: .* has sequences; of sound that is read as audio:PATH, set --data.task tokens$",
        ),
        ("sequence/attention_seq2seq", tokens(), "needs pairs of texts: .* has tokens"),
        ("sequence/gru:values", sequences(), "needs values as targets: those of .* are classes"),
        ("feedforward/mlp", ragged_classes(), "needs vectors: .* has sequences"),
        ("geometric/gcn", graphs(), "takes the nodes of one graph: .* is many graphs"),
        ("geometric/gin:graphs", nodes(), "takes many graphs: .* is the nodes of one graph"),
    ],
)
def test_inputs_of_another_kind_are_refused_with_the_way_to_read_them(entry: str, data, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_task(ENTRIES[entry], data)


@pytest.mark.parametrize(
    ("entry", "reading"),
    [
        ("sequence/gru", "sequence/gru needs sequences: read a file of them as sequences:a.npz"),
        (
            "sequence/gru:series",
            "sequence/gru:series needs a series to forecast: read a file of them as series:a.npz",
        ),
        ("sequence/gru:tokens", "sequence/gru:tokens needs tokens: read a file of them as text:a.npz"),
        ("feedforward/mlp", ""),
    ],
)
def test_a_file_without_its_prefix_is_told_it(entry: str, reading: str) -> None:
    assert reading_of(ENTRIES[entry], "a.npz") == reading


def test_sequences_of_one_length_are_vectors_too() -> None:
    check_task(ENTRIES["feedforward/mlp"], sequences())


def test_batches_hold_sequences_of_similar_length(tmp_path: Path) -> None:
    data = ragged_classes()
    job = prepare(
        "sequence/gru", data, {"options": {}, "step": {}, "rule": ""}, Training(batch_size=8), tmp_path / "r"
    )
    assert isinstance(job.plan.feed.shuffled, BySimilarLength)
    lengths = [job.plan.batches(step).inputs[1] for step in range(job.plan.per_epoch)]
    assert torch.equal(torch.cat(lengths).sort().values, data.splits["train"].lengths.sort().values)


def test_a_graph_cannot_be_cut_into_pieces(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="accumulate must be 1: a batch of graphs is one graph"):
        train("geometric/gcn", nodes(), training=Training(max_steps=1, accumulate=2), out=tmp_path / "r")


def test_all_nodes_of_a_part_are_judged_in_one_pass(tmp_path: Path) -> None:
    data = nodes()
    options = {"options": {}, "step": {}, "rule": ""}
    job = prepare("geometric/gcn", data, options, Training(max_steps=1), tmp_path / "r")
    assert len(job.plan.held["test"]) == 1
    assert evaluation_batch(data.splits["test"]) == len(data.splits["test"])
