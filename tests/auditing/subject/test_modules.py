import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from margin.auditing.subject.user_modules import load_builder
from margin.core.user_modules import BuilderError
from margin.engine.transfer import load_weights


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
    for name in [name for name in sys.modules if name.startswith("strangers_")]:
        sys.modules.pop(name)


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
            "strangers_net:build_sized must be callable without arguments: it needs width; "
            "write a function that calls it, def build(): return build_sized(width=...), and name that",
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


BROKEN = {
    "strangers_quit": (
        "import sys\nsys.exit(0)\n",
        "build",
        "strangers_quit ended the program by sys.exit(0)",
        2,
    ),
    "strangers_raise": (
        "def inner():\n    return 1 / 0\ndef build():\n    return inner()\n",
        "build",
        "strangers_raise:build raised ZeroDivisionError: division by zero",
        2,
    ),
    "strangers_recurse": (
        "def build():\n    return build()\n",
        "build",
        "strangers_recurse:build raised RecursionError: maximum recursion depth exceeded",
        2,
    ),
    "strangers_leave": (
        "import sys\ndef build():\n    sys.exit(3)\n",
        "build",
        "strangers_leave:build ended the program by sys.exit(3)",
        3,
    ),
    "strangers_own": (
        "class Own(BaseException):\n    pass\ndef build():\n    raise Own('gone')\n",
        "build",
        "strangers_own:build raised Own: gone",
        4,
    ),
    "strangers_generator": (
        "def build():\n    raise GeneratorExit\n",
        "build",
        "strangers_generator:build raised GeneratorExit",
        2,
    ),
    "strangers_syntax": (
        "x = 1\ndef build(:\n",
        "build",
        "strangers_syntax raised SyntaxError: invalid syntax (strangers_syntax.py, line 2)",
        2,
    ),
    "strangers_deep": (
        "import torch\n\n\ndef build():\n    return torch.nn.Linear(2, 'a')\n",
        "build",
        "strangers_deep:build raised TypeError",
        5,  # the last frame of the user's file, not of torch's
    ),
}


def test_ctrl_c_in_code_of_the_users_stays_ctrl_c(here):
    (here / "strangers_stop.py").write_text("def build():\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_builder("strangers_stop:build")


@pytest.mark.parametrize("name", BROKEN)
def test_code_that_fails_is_one_line_and_its_own_last_frame(here, name):
    text, function, message, row = BROKEN[name]
    (here / f"{name}.py").write_text(text)
    with pytest.raises(BuilderError) as caught:
        load_builder(f"{name}:{function}")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    first, *_ = caught.value.place.splitlines()
    assert first.startswith(f'  File "{here / name}.py", line {row}')
    assert caught.value.place.count("File ") == 1


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("./nets.py:build", "write nets:build"),
        ("nets.py:build", "write nets:build"),
        ("../other/nets.py:build", "in ../other, write nets:build"),
        ("/a/b/nets.py:build", "in /a/b, write nets:build"),
        (".nets:build", "write nets:build"),
    ],
)
def test_a_path_of_a_file_is_refused_with_what_to_write(here, path, advice):
    with pytest.raises(ValueError, match="by no path of a file") as caught:
        load_builder(path)
    assert str(caught.value).endswith(advice)


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 3)
        self.module = nn.Linear(3, 1)  # a name that wrappers use too


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.replace("encoder.", "encoder._orig_mod."),
    ],
)
def test_weights_of_a_wrapped_module_are_loaded_and_said(tmp_path, ending, renamed):
    trained, fresh = Wrapped(), Wrapped()
    state = {renamed(name): tensor for name, tensor in trained.state_dict().items()}
    path = tmp_path / f"w{ending}"
    save_file(state, path) if ending == ".safetensors" else torch.save(state, path)
    told = load_weights(fresh, path)
    assert told.startswith("the names of the weights are read without ")
    for name, tensor in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor)


def test_weights_under_their_own_names_are_taken_without_a_word(tmp_path):
    model = Wrapped()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert load_weights(Wrapped(), tmp_path / "w.pt") == ""
    compiled = nn.Module()  # as torch.compile names it: the model's own names have the word, the file's not
    compiled._orig_mod = Wrapped()
    assert "_orig_mod." in load_weights(compiled, tmp_path / "w.pt")
    assert torch.equal(compiled._orig_mod.encoder.weight, model.encoder.weight)


def test_names_that_a_wrapper_does_not_explain_are_still_refused(tmp_path):
    state = {
        f"module.{name}": tensor for name, tensor in Wrapped().state_dict().items() if "bias" not in name
    }
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"does not fit Wrapped: missing: encoder\.bias, module\.bias$"):
        load_weights(Wrapped(), tmp_path / "w.pt")
