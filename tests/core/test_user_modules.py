"""One's own module and loss, read without a training: names, parameters, options, what fits which targets."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import own_modules
from margin.core.tasks import BINARY, CLASSES, TOKENS, VALUES
from margin.core.user_losses import check_mean, each_term, loss_of, of_numbers, recorded_loss
from margin.core.user_modules import (
    BuilderError,
    builder_of,
    check_builder,
    edited,
    entry_of,
    is_nameable,
    is_user_model,
    named_object,
    object_of,
    parameters_of,
    reported,
    reported_within,
    source_of,
    user_entry,
)
from margin.data.examples import Arrays, Data
from margin.runs.user_models import check_shape, choose, precision_of, task_for


class Hidden(nn.Module):
    """Of every kind of parameter."""

    def __init__(self, num_classes, in_features, /, width=2, *, channels, horizon=7, bias=True, kind=None):
        super().__init__()
        self.sizes = (in_features, num_classes, channels)
        self.options = (width, horizon, bias, kind)


class Over(Hidden):
    def __init__(self, *args, width=9, **kwargs):
        super().__init__(*args, width=width, **kwargs)


class Starred(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)


class Held(nn.Module):
    def __init__(self, in_features):
        super().__init__()
        self.layer = nn.LazyLinear(3)


class Kept(nn.Module):
    def __init__(self, kept=1):
        super().__init__()
        self.kept = kept


def data_of(targets: torch.Tensor | None, **encoding: object) -> Data:
    part = Arrays((torch.zeros(4, 2),), targets)
    return Data(name="d", splits={"train": part}, spec={"num_classes": 3}, encoding=dict(encoding))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("mlp:Net", True),
        ("mlp:values", False),  # a head
        ("sequence/lstm:values", False),
        ("nets/mine:Net", False),  # a path without .py is an entry's name, misspelled
        ("nets/mine.py:Net", True),
        ("mlp", False),
        (":Net", False),
    ],
)
def test_a_path_is_told_from_the_name_of_an_entry(name: str, own: bool) -> None:
    assert is_user_model(name) is own


def test_the_current_directory_is_searched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "twice_named.py").write_text("here = False")
    (tmp_path / "twice_named.py").write_text("here = True\n_hidden = 1")
    monkeypatch.setattr(sys, "path", [str(other), *sys.path])
    monkeypatch.chdir(tmp_path)
    assert named_object("twice_named:here") is True
    with pytest.raises(ValueError, match=r"twice_named has no '_hiden'; nearest: none"):
        named_object("twice_named:_hiden")
    del sys.modules["twice_named"]


def test_what_ours_raises_stays_as_it_is() -> None:
    """A frame of a file in brackets is nobody's code."""
    ours = compile("with reported_within('mine'):\n    {}['of ours']", "<ours>", "exec")
    with pytest.raises(KeyError, match="of ours"):
        exec(ours, {"reported_within": reported_within})


def test_what_the_users_code_raises_is_told_once() -> None:
    told = pytest.raises(BuilderError, match=r"^inner raised RuntimeError: no luck today$")
    with told as caught, reported_within("outer"), reported("inner"):
        own_modules.Raising(1)
    assert caught.value.place.splitlines()[0].endswith("in __init__")


def test_an_object_is_found_by_its_own_name_alone() -> None:
    class Local(nn.Module):
        pass

    Local.__qualname__ = "Hidden"  # of another class
    assert is_nameable(Hidden) and not is_nameable(Local)


def test_a_class_that_hands_on_has_its_own_defaults_before_its_bases() -> None:
    assert {p.name: p.default for p in parameters_of(Over) if p.default is not p.empty} == {
        "width": 9,
        "horizon": 7,
        "bias": True,
        "kind": None,
    }
    assert parameters_of(Starred) == []  # which takes no options to hand on: its base's stay unknown


def test_a_constructor_says_what_the_data_dictate() -> None:
    build = builder_of(Hidden, "Hidden", {"in_features": 4, "num_classes": 3, "channels": 1})
    by_kind = {name: p.kind.name for name, p in build.__signature__.parameters.items()}  # type: ignore[attr-defined]
    assert by_kind == {
        "num_classes": "POSITIONAL_OR_KEYWORD",
        "in_features": "POSITIONAL_OR_KEYWORD",
        "channels": "POSITIONAL_OR_KEYWORD",  # behind a star without a default: only the data have it
        "width": "KEYWORD_ONLY",
        "bias": "KEYWORD_ONLY",
        "kind": "KEYWORD_ONLY",
        "horizon": "KEYWORD_ONLY",  # behind a star with one: the user's
    }
    hints = {name: p.annotation for name, p in build.__signature__.parameters.items()}  # type: ignore[attr-defined]
    assert hints["bias"] is bool and hints["width"] == int | float
    made = build(in_features=4, num_classes=3, channels=1, bias=False)
    assert made.sizes == (4, 3, 1) and made.options == (2, 7, False, None)


def test_a_default_stays_where_the_data_do_not_dictate() -> None:
    def build(in_features, channels=5, scale=1.0, norm: Any = nn.LayerNorm):
        return nn.Linear(in_features, channels)

    some = builder_of(build, "build", {"in_features": 4})
    assert list(some.__signature__.parameters) == ["in_features", "scale"]  # type: ignore[attr-defined]
    assert some(in_features=4).out_features == 5
    every = builder_of(build, "build")
    assert list(every.__signature__.parameters) == ["in_features", "channels", "scale"]  # type: ignore[attr-defined]
    both = builder_of(build, "build", {"in_features": 4, "channels": 2})
    assert list(both.__signature__.parameters) == ["in_features", "channels", "scale"]  # type: ignore[attr-defined]
    assert both(in_features=4, channels=2).out_features == 2


def test_a_module_is_copied_each_time_it_is_built() -> None:
    net = nn.Linear(2, 2)
    one, two = (builder_of(net, "net")() for _ in range(2))
    assert one is not two and one is not net and one.weight.equal(net.weight)


def test_a_lazy_layer_is_refused_by_name_wherever_it_comes_from() -> None:
    with pytest.raises(ValueError, match=r"layer\.weight is of a lazy layer"):
        builder_of(Held, "Held", {"in_features": 2})(in_features=2)
    with pytest.raises(ValueError, match=r"layer\.weight is of a lazy layer"):
        choose(Held(2), data_of(torch.tensor([0, 1, 2, 0]), task="classes"))


def test_a_changed_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("1")
    _, digest = source_of(own_modules.Classes)
    record = {"own": {"file": str(file), "sha256": digest}}
    assert f"{file} has changed" in edited(record)
    file.unlink()
    assert f"{file} has gone" in edited(record)
    assert edited({}) == edited({"own": {"file": "", "sha256": ""}}) == ""
    place, digest = source_of(own_modules.Classes)
    assert edited({"own": {"file": place, "sha256": digest}}) == ""


def record_of(**changed: object) -> dict[str, object]:
    own = {"task": "classes", "loss": "", "loss_options": {}, "file": "", "sha256": "", "handed": ""}
    recipe = {"model": "own_modules:Classes", "spec": {"in_features": 4, "num_classes": 3}}
    recipe["options"] = changed.pop("options", {"width": 3, "dropout": 0.1})
    return {"recipe": recipe, "own": own | changed}


def test_a_record_has_the_options_that_its_module_has() -> None:
    assert entry_of(record_of()).name == "own_modules:Classes"
    for options, message in (
        ({"width": 3}, "has the new option 'dropout'"),
        ({"width": 3, "dropout": 0.1, "depth": 1}, "no longer has 'depth'"),
    ):
        with pytest.raises(ValueError, match=message):
            entry_of(record_of(options=options))


def test_a_module_that_was_handed_over_is_handed_over_again() -> None:
    record, net = record_of(handed="module"), own_modules.Classes(4, 3)
    assert object_of(record, net) is net
    with pytest.raises(ValueError, match="hand over one again"):
        object_of(record, own_modules.Classes)
    with pytest.raises(ValueError, match=r"margin\.load\(run, model=\.\.\.\)"):
        object_of(record)
    assert object_of(record_of(handed="code"), own_modules.build) is own_modules.build


def test_a_module_that_is_handed_over_is_trained_in_its_own_units() -> None:
    own = record_of(handed="module")["own"]
    scaled = {"scale": "none", "scale_targets": "none"}
    assert user_entry("net", own_modules.Classes, own).defaults == scaled
    assert user_entry("net", own_modules.Classes, record_of()["own"]).defaults == {}


def test_a_path_of_the_command_line_is_called_only_where_it_says_that_it_builds() -> None:
    check_builder(own_modules.build, "own_modules:build")
    check_builder(nn.Linear, "torch.nn:Linear")
    for found in (dict, torch.hub.load, Path.cwd):
        with pytest.raises(ValueError, match=r"must be a module or a function|which must say"):
            check_builder(found, "a:b")
    with pytest.raises(ValueError, match="which must say that it returns a module"):
        choose("torch.hub:load", data_of(torch.tensor([0, 1, 2, 0]), task="classes"))


# losses


def test_a_loss_is_recorded_with_what_makes_it_again() -> None:
    path, options = recorded_loss(nn.CrossEntropyLoss(label_smoothing=0.1))
    assert path == "torch.nn.modules.loss:CrossEntropyLoss"
    assert options == {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.1}
    assert recorded_loss(nn.HuberLoss(delta=2.0))[1] == {"reduction": "mean", "delta": 2.0}
    assert recorded_loss("torch.nn:L1Loss") == ("torch.nn:L1Loss", {})
    with pytest.raises(ValueError, match="options of an objective must be plain values: kept"):
        recorded_loss(Kept(nn.ReLU()))
    assert recorded_loss(Kept(None))[1] == {"kept": None}  # another default: it is recorded


def test_a_loss_of_another_length_is_refused() -> None:
    terms = each_term(lambda outputs, targets: outputs[:-1, 0], "mine")
    with pytest.raises(ValueError, match=r"of 3 examples got \(2,\)"):
        terms(torch.zeros(3, 2), torch.zeros(3))


def test_weights_of_a_loss_follow_the_type_of_what_it_is_given() -> None:
    loss = loss_of("torch.nn:CrossEntropyLoss", {"weight": [1.0, 2.0]})
    outputs, labels = torch.randn(3, 2, dtype=torch.float64), torch.tensor([0, 1, 1])
    wanted = nn.functional.cross_entropy(outputs, labels, torch.tensor([1.0, 2.0]).double(), reduction="none")
    torch.testing.assert_close(loss(outputs, labels), wanted)


def test_labels_are_numbers_to_the_loss_of_one_logit() -> None:
    loss = of_numbers(loss_of("torch.nn:BCEWithLogitsLoss", {}))
    outputs, labels = torch.randn(3), torch.tensor([0, 1, 1])
    torch.testing.assert_close(loss(outputs, labels), BINARY.loss(outputs, labels))  # type: ignore[misc]


@pytest.mark.parametrize("path", ["torch.nn:CrossEntropyLoss", "torch.nn.functional:cross_entropy"])
@pytest.mark.parametrize("shape", [(4, 5), (4, 3), (4, 2, 3)])  # tokens; as many as classes; pixels
def test_classes_are_the_last_axis_of_a_models_outputs(path: str, shape: tuple[int, ...]) -> None:
    """Torch's losses have them in the second one; the value by hand, log softmax over the last."""
    torch.manual_seed(0)
    outputs, labels = torch.randn(*shape, 3), torch.randint(3, shape)
    wanted = -outputs.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    terms = loss_of(path, {})
    torch.testing.assert_close(terms.whole(outputs, labels), wanted.mean())
    found = terms(outputs, labels)
    torch.testing.assert_close(found, wanted if found.ndim > 1 else wanted.flatten(1).mean(1))
    check_mean(terms, path, outputs, labels)


# what fits


@pytest.mark.parametrize(
    ("targets", "encoding", "stated", "task"),
    [
        (torch.tensor([0, 1, 2, 0]), {}, "", "classes"),
        (torch.zeros(4), {}, "", "values"),
        (torch.zeros(4, 5, dtype=torch.int64), {}, "", "point_classes"),
        (torch.zeros(4, 5, dtype=torch.int64), {"task": "tokens"}, "", "tokens"),
        (None, {}, "", "reconstruction"),
        (torch.zeros(4), {"task": "none"}, "values", "values"),
        (torch.tensor([0, 1, 2, 0]), {}, "reconstruction", "reconstruction"),
        (torch.tensor([0, 1, 2, 0]), {}, "scores", "scores"),
    ],
)
def test_targets_say_how_outputs_are_read(
    targets: torch.Tensor | None, encoding: dict[str, str], stated: str, task: str
) -> None:
    assert task_for(data_of(targets, **encoding), stated, "net") == task


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("values", "must fit the targets of d, which are classes: got values"),
        ("binary", "the task binary must have two classes: d has 3"),
        ("halfspace", "the task halfspace must have two classes"),
        ("klasses", "task must be one of"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(stated: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task_for(data_of(torch.tensor([0, 1, 2, 0])), stated, "net")


@pytest.mark.parametrize(
    ("task", "outputs", "targets", "spec", "message"),
    [
        (
            VALUES,
            (2, 1),
            (2,),
            {},
            r"one number a target, \(N\): got \(N, 1\); end its forward with .squeeze",
        ),
        (VALUES, (), (1,), {}, r"squeeze\(\) drops a batch of one"),
        (CLASSES, (2,), (2,), {"num_classes": 2}, "one logit an example is the task binary"),
        (
            CLASSES,
            (2, 4),
            (2,),
            {"num_classes": 3},
            r"each of 3 classes, \(N, 3\): got \(N, 4\); outputs like the",
        ),
        (TOKENS, (2, 5, 3), (2, 5), {"vocab_size": 7}, r"each of 7 tokens, \(N, 5, 7\): got \(N, 5, 3\)$"),
    ],
)
def test_outputs_of_another_shape_have_a_remedy(
    task: object, outputs: tuple[int, ...], targets: tuple[int, ...], spec: dict[str, int], message: str
) -> None:
    kind = torch.float32 if task is VALUES else torch.int64
    with pytest.raises(ValueError, match=message):
        check_shape(
            torch.zeros(outputs), torch.zeros(2, 4), torch.zeros(targets, dtype=kind), task, "net", spec
        )


def test_a_task_and_a_loss_of_an_entry_are_its_own() -> None:
    for given in ({"task": "classes"}, {"objective": nn.L1Loss()}):
        with pytest.raises(ValueError, match=f"leave out {next(iter(given))}"):
            choose("mlp", data_of(torch.tensor([0, 1, 2, 0]), task="classes"), **given)


def test_what_is_handed_over_is_known_by_what_finds_it_again() -> None:
    data = data_of(torch.tensor([0, 1, 2, 0]), task="classes")
    net = own_modules.Classes(2, 3)
    for model, handed in (
        (own_modules.Classes, ""),
        ("own_modules:Classes", ""),
        (lambda in_features: nn.Linear(in_features, 3), "code"),
        (net, "module"),
    ):
        chosen = choose(model, data)
        assert (chosen.own or {})["handed"] == handed
        assert chosen.handed is (model if handed else None)


def test_the_precision_is_the_modules_own() -> None:
    net = nn.Linear(2, 2)
    assert precision_of(net, "net") == precision_of(nn.Flatten(), "net") == "float32"
    assert precision_of(nn.Sequential(net, nn.Linear(2, 2).double()), "net") == "float64"
    with pytest.raises(ValueError, match="some of net are of float16"):
        precision_of(nn.Linear(2, 2).half(), "net")
