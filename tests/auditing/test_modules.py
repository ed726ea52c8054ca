import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from margin.auditing.modules import load_builder, load_weights


@pytest.fixture
def here(tmp_path, monkeypatch):
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "strangers_net.py").write_text(
        "import torch\n"
        "def build():\n    return torch.nn.Linear(2, 3)\n"
        "def build_number():\n    return 3\n"
        "def build_sized(width):\n    return torch.nn.Linear(2, width)\n"
        "net = torch.nn.Linear(2, 5)\n"
        "number = 3\n"
    )
    (tmp_path / "strangers_broken.py").write_text("import a_module_nobody_has\n")
    yield tmp_path
    for name in ("strangers_net", "strangers_broken"):
        sys.modules.pop(name, None)


def test_a_builder_in_the_current_directory_is_called(here):
    assert load_builder("strangers_net:build").out_features == 3
    assert load_builder("strangers_net:net").out_features == 5
    assert isinstance(load_builder("torch.nn:Identity"), nn.Identity)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("strangers_net", "a model is named as package.module:function: got 'strangers_net'"),
        ("strangers_net:", "a model is named as package.module:function: got 'strangers_net:'"),
        ("strangers_nett:build", "no module 'strangers_nett' here or among the installed packages"),
        ("torch.nowhere:build", "no module 'torch.nowhere' here or among the installed packages"),
        (
            "strangers_broken:build",
            "strangers_broken could not be imported: it needs the module 'a_module_nobody_has'",
        ),
        ("strangers_net:bild", "strangers_net has no 'bild'; nearest: build, build_sized"),
        ("strangers_net:number", "strangers_net:number must build a torch module: it is of type int"),
        (
            "strangers_net:build_number",
            "strangers_net:build_number must build a torch module: it returned the type int",
        ),
        (
            "strangers_net:build_sized",
            "strangers_net:build_sized must be callable without arguments: it needs width",
        ),
    ],
)
def test_a_wrong_name_is_one_line(here, path, message):
    with pytest.raises(ValueError) as caught:
        load_builder(path)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def filled():
    model = net()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + 2)
    return model.state_dict()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_fill_parameters_and_buffers(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    state = filled()
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    model = net()
    load_weights(model, path)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    wide = net().double()
    load_weights(wide, path)
    assert wide[0].weight.dtype == torch.float64


def message_of(path, state=None):
    if state is not None:
        torch.save(state, path)
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        load_weights(model, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(path), "FILE")


def test_missing_unexpected_and_wrong_shaped_tensors_are_named(tmp_path):
    state = filled()
    del state["0.bias"]
    state["head.weight"] = torch.ones(1)
    state["0.weight"] = torch.ones(3, 4)
    assert message_of(tmp_path / "w.pt", state) == (
        "FILE does not fit Sequential: missing: 0.bias; unexpected: head.weight; "
        "wrong shape: 0.weight is (3, 4) in the file, (3, 2) in the model"
    )


def test_many_names_are_counted(tmp_path):
    assert message_of(tmp_path / "w.pt", {}) == (
        "FILE does not fit Sequential: missing: 0.weight, 0.bias, 1.weight and 4 more"
    )


def test_a_checkpoint_that_holds_more_is_refused_with_the_remedy(tmp_path):
    text = message_of(tmp_path / "w.pt", {"epoch": 3, "model": filled()})
    assert text == "FILE must hold a state dict: not a tensor: epoch, model; save model.state_dict()"
    assert message_of(tmp_path / "w.pt", [1]) == "FILE must hold a state dict: it holds the type list"


class Bomb:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, capsys):
    text = message_of(tmp_path / "w.pt", {"a": Bomb()})
    assert text == "FILE holds more than tensors, or is damaged: save model.state_dict() instead"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_a_damaged_file_is_one_line(tmp_path, suffix, damage):
    path = tmp_path / f"w{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(filled(), path)
    whole = path.read_bytes()
    path.write_bytes(
        {"cut": whole[: len(whole) // 2], "noise": b"no weights at all" * 50, "empty": b""}[damage]
    )
    assert "damaged" in message_of(path)


def test_a_missing_file_and_another_kind_of_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        load_weights(net(), tmp_path / "nothing.pt")
    (tmp_path / "w.bin").write_bytes(b"x")
    assert message_of(tmp_path / "w.bin") == "weights are a .safetensors, .pt or .pth file: got FILE"
