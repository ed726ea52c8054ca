"""ResNets of transformers and torchvision are ours: recorded answers, names, and beside transformers."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.vision.convnets.transformers_resnet import CLASSES, CONFIGS, FILE, asked
from torch import Tensor

import margin
from margin import Training
from margin.core.catalog import completed
from margin.data.examples import Arrays, Data
from margin.runs.training import prepare
from margin.vision.convnets.resnet import ResNet
from margin.vision.convnets.weights import resnet_weights

SHAPES = [
    *CONFIGS.values(),
    {"layer_type": "basic", "embedding_size": 5, "hidden_sizes": [5, 5, 7], "depths": [2, 1, 1]},
    {"layer_type": "bottleneck", "embedding_size": 2, "hidden_sizes": [8], "depths": [3]},
]


def recorded(kind: str) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    tensors = load_file(FILE)
    weights = {n.removeprefix(f"{kind}."): t for n, t in tensors.items() if n.startswith(f"{kind}.")}
    return weights, tensors[f"{kind}/inputs"], tensors[f"{kind}/logits"]


def answered(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    found = resnet_weights(weights, {})
    model = ResNet(x.shape[1], tuple(x.shape[2:]), CLASSES, **found.options).eval()
    model.load_state_dict(found.tensors)
    with torch.no_grad():
        return model(x)


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_recorded_answers_of_transformers_are_ours(kind: str) -> None:
    with safe_open(FILE, "pt") as file:
        assert json.loads(file.metadata()["configs"]) == CONFIGS
    weights, x, logits = recorded(kind)
    assert logits.std() > 0.1
    assert torch.allclose(answered(weights, x), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("config", SHAPES)
def test_transformers_answers_the_same(config: dict[str, Any]) -> None:
    weights, x, logits = asked({"num_channels": 3, **config})
    assert torch.allclose(answered(weights, x), logits, rtol=1e-5, atol=1e-5)


def as_torchvision(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names that torchvision/models/resnet.py gives to the same layers."""
    found = {}
    for name, tensor in weights.items():
        words = name.removeprefix("resnet.").split(".")
        leaf = words[-1]
        if words[0] == "embedder":
            found[f"{'conv1' if words[2] == 'convolution' else 'bn1'}.{leaf}"] = tensor
        elif words[0] == "classifier":
            found[f"fc.{leaf}"] = tensor
        else:  # encoder.stages.S.layers.B.layer.K.convolution or .shortcut.convolution
            place, norm = f"layer{int(words[2]) + 1}.{words[4]}", words[-2] == "normalization"
            shortcut = words[5] == "shortcut"
            layer = (
                f"downsample.{int(norm)}" if shortcut else f"{'bn' if norm else 'conv'}{int(words[6]) + 1}"
            )
            found[f"{place}.{layer}.{leaf}"] = tensor
    return found


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_names_of_torchvision_are_known_too(kind: str) -> None:
    weights, x, logits = recorded(kind)
    theirs = as_torchvision(weights)
    assert len(theirs) == len(weights) and "layer2.0.downsample.1.running_var" in theirs
    assert torch.allclose(answered(theirs, x), logits, rtol=1e-5, atol=1e-5)


def test_the_published_networks_are_known_by_their_depth() -> None:
    for depth in (18, 50):
        with torch.device("meta"):
            ours = ResNet(3, (224, 224), 1000, depth=depth, stem="large").state_dict()
        theirs = {}
        for name, tensor in ours.items():  # torchvision's, written from ours
            words = name.split(".")
            if words[0] == "stem":
                theirs[f"{'conv1' if words[1] == '0' else 'bn1'}.{words[-1]}"] = tensor
            elif words[0] == "head":
                theirs[f"fc.{words[-1]}"] = tensor
            else:
                at = int(words[5])
                layer = f"{'bn' if at % 3 else 'conv'}{at // 3 + 1}"
                layer = f"downsample.{at}" if words[4] == "shortcut" else layer
                theirs[f"layer{int(words[1]) + 1}.{words[2]}.{layer}.{words[-1]}"] = tensor
        found = resnet_weights(theirs, {})
        assert found.options == {"depth": depth, "stem": "large", "shortcut": "projection"}
        assert found.tensors.keys() == ours.keys()


def test_a_tensor_without_a_counterpart_is_named() -> None:
    weights, _, _ = recorded("basic")
    odd = {**weights, "resnet.encoder.stages.0.gate.weight": torch.zeros(1), "spare": torch.zeros(1)}
    message = r"a ResNet of transformers: 2 are not: resnet.encoder.stages.0.gate.weight, spare"
    with pytest.raises(ValueError, match=message):
        resnet_weights(odd, {})
    assert resnet_weights(ResNet(1, (8, 8), 2).state_dict(), {}) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_act": "gelu"}, r"hidden_act of a ResNet must be 'relu': got 'gelu'"),
        ({"downsample_in_bottleneck": True}, "downsample_in_bottleneck of a ResNet must be False"),
        ({"downsample_in_first_stage": True}, "downsample_in_first_stage of a ResNet must be False"),
    ],
)
def test_a_setting_that_ours_has_not_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resnet_weights(recorded("basic")[0], config)


def test_networks_with_groups_or_other_stems_are_refused() -> None:
    weights, _, _ = recorded("bottleneck")
    name = "resnet.encoder.stages.0.layers.0.layer.1.convolution.weight"
    with pytest.raises(ValueError, match=r"convolutions must have one group: .* has 2"):
        resnet_weights({**weights, name: weights[name][:, ::2]}, {})
    last = "resnet.encoder.stages.1.layers.0.layer.2.convolution.weight"
    with pytest.raises(ValueError, match=r"a bottleneck must widen by 4: .* has 6 to 12"):
        resnet_weights({**weights, last: weights[last][:12]}, {})
    stem = "resnet.embedder.embedder.convolution.weight"
    with pytest.raises(ValueError, match=r"the stem must have the width of the first stage: .* has 3 and 4"):
        resnet_weights({**weights, stem: weights[stem][:3]}, {})


def images(channels: int, classes: int) -> Data:
    torch.manual_seed(0)
    y = torch.arange(24) % classes
    part = Arrays((torch.randn(24, channels, 12, 10),), y)
    spec = {"channels": channels, "image_size": (12, 10), "num_classes": classes, "num_examples": 24}
    return Data(name="images", splits={"train": part, "test": part}, spec=spec)


def folder_of(path: Path, kind: str, config: dict[str, Any] | None = None) -> Path:
    path.mkdir()
    save_file(recorded(kind)[0], path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIGS[kind] if config is None else config))
    return path


BEGIN = {"options": {}, "step": {}, "rule": ""}


@pytest.mark.parametrize("whole", [True, False])
def test_a_training_begins_with_a_folder_or_a_file_and_says_the_new_last_layer(
    tmp_path: Path, whole: bool
) -> None:
    place = folder_of(tmp_path / "w", "basic")
    training = Training(max_steps=1, init_from=str(place if whole else place / "model.safetensors"))
    # the command line gives all defaults too
    arguments = BEGIN if whole else {**BEGIN, "options": completed(ResNet, {})}
    job = prepare("resnet", images(3, 2), arguments, training, tmp_path / "run")
    options = "block basic, blocks (1, 2), widths (6, 10), stem large, shortcut projection"
    assert any(note.endswith(f" has {options}") for note in job.notes)
    (line,) = [note for note in job.notes if "begin with the values" in note]
    assert line.endswith(
        "new last layer, as drawn: head.weight (of shape (2, 10), in the source (5, 10)), "
        "head.bias (of shape (2,), in the source (5,))"
    )
    options = job.run.record["arguments"]["options"]
    assert (options["block"], tuple(options["widths"]), options["stem"]) == ("basic", (6, 10), "large")
    begun = job.state.core.state_dict()
    found = resnet_weights(recorded("basic")[0], {}).tensors
    assert all(torch.equal(begun[name], found[name]) for name in found if not name.startswith("head."))
    assert line.startswith(f"{len(found) - 2} tensors")
    job.lock.release()


def test_the_last_layer_is_taken_over_where_its_shape_fits(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "w", "basic")
    training = Training(max_steps=1, init_from=str(place))
    job = prepare("resnet", images(3, CLASSES), BEGIN, training, tmp_path / "run")
    assert any(note.endswith("; those of the last layer too") for note in job.notes)
    _, x, logits = recorded("basic")
    model = job.state.core.eval()
    assert torch.allclose(model(x), logits, rtol=1e-5, atol=1e-5)
    job.lock.release()


def test_a_fine_tuned_run_resumes_without_the_weights(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "w", "basic")
    training = Training(epochs=2, batch_size=8, schedule="constant", init_from=str(place), freeze=["stem"])
    whole = margin.train("resnet", images(3, 2), training=training, out=tmp_path / "a")
    half = margin.train("resnet", images(3, 2), training=replace(training, epochs=1), out=tmp_path / "b")
    place.rename(tmp_path / "gone")
    resumed = margin.resume(half, images(3, 2), Training(epochs=2))
    ours, theirs = (margin.load(run, "last").state_dict() for run in (whole, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    begun = resnet_weights(recorded("basic")[0], {}).tensors
    assert torch.equal(ours["model.stem.0.weight"], begun["stem.0.weight"])
    assert not torch.equal(ours["model.stages.0.0.0.branch.0.weight"], begun["stages.0.0.0.branch.0.weight"])


def refused(tmp_path: Path, data: Data, path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(
            "resnet", data, {**BEGIN, "options": options}, Training(init_from=str(path)), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_gray_images_into_a_network_of_rgb_name_the_remedy(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "w", "basic")
    message = r"the data must have the channels that .* were trained with: got 1 for 3: .*--data.channels 3"
    refused(tmp_path, images(1, 2), path, message)


def test_an_option_against_the_weights_is_refused(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "w", "basic")
    message = r"widths must be .6, 10. as in the weights .*: got .6, 12.; leave out --model.widths"
    refused(tmp_path, images(3, 2), path, message, widths=(6, 12))


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path) -> None:
    weights, _, _ = recorded("basic")
    lacking = "resnet.encoder.stages.1.layers.1.layer.0.normalization.weight"
    path = tmp_path / "w.safetensors"
    save_file({name: tensor for name, tensor in weights.items() if name != lacking}, path)
    message = r"must fit the model, the last layer apart: not given.*: stages.1.1.0.branch.1.weight"
    refused(tmp_path, images(3, 2), path, message)


def test_a_folder_without_the_file_says_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.mkdir()
    (path / "pytorch_model.bin").write_bytes(b"x")
    refused(tmp_path, images(3, 2), path, "must hold model.safetensors: .* has pytorch_model.bin; save_pretr")
    (path / "pytorch_model.bin").unlink()
    refused(tmp_path, images(3, 2), path, "init_from must be the directory of a run, or a file of weights")
    damaged = folder_of(tmp_path / "d", "basic")
    (damaged / "config.json").write_text("{")
    refused(tmp_path, images(3, 2), damaged, "config.json must be JSON")
    (damaged / "config.json").write_text("[]")
    refused(tmp_path, images(3, 2), damaged, "config.json must hold a JSON object: got list")


def test_the_body_alone_serves_as_transformers_saves_it(tmp_path: Path) -> None:
    weights, _, _ = recorded("bottleneck")
    body = {n.removeprefix("resnet."): t for n, t in weights.items() if not n.startswith("classifier")}
    path = tmp_path / "w.safetensors"
    save_file(body, path)
    job = prepare("resnet", images(1, 5), BEGIN, Training(init_from=str(path)), tmp_path / "run")
    assert any("new last layer, as drawn: head.weight (the source has no such" in n for n in job.notes)
    job.lock.release()
