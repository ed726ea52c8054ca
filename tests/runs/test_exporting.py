"""An exported file gives the run's own outputs, says what it takes and returns, and is whole or not there."""

import functools
import json
import logging
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import margin
import margin.runs.exporting
from margin.core.catalog import Entry, models
from margin.core.options import Training
from margin.data.examples import Data, InOrder
from margin.engine.build import build
from margin.engine.runs import Run
from margin.testing import tiny_data
from smaller import SMALLER

SIZES = (1, 7)
ENTRIES = pytest.mark.parametrize("entry", models().values(), ids=lambda entry: entry.name, scope="module")
"""Of the module, so that what asks the same entry comes in a row, and its run is trained once."""


ThreeSteps = Callable[..., tuple[Run, torch.Tensor]]


def trained(entry: Entry, directory: Path, steps: int = 3, **options: Any) -> tuple[Run, torch.Tensor]:
    """A run of a few steps on data in memory, and its first input."""
    data = tiny_data(entry)
    training = Training(max_steps=steps, **options)
    run = margin.train(entry.name, data, SMALLER.get(entry.name, {}), training, out=directory / "run")
    x = InOrder(data.splits["train"], len(data.splits["train"]))[0].inputs[0]
    return run, x


def first_of_their_data() -> list[Entry]:
    """The first entry of each task and tiny data: a program's type is that of its inputs, whatever the model.

    That every model itself computes in the type of its inputs is a contract of its entry.
    """
    first: dict[tuple[str, str], Entry] = {}
    for entry in models().values():
        first.setdefault((entry.task, entry.tiny), entry)
    return list(first.values())


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> ThreeSteps:
    """A run of three steps of an entry, which the formats share, and its first input; in float64 of one."""

    @functools.cache
    def made(name: str, precision: str = "float32") -> tuple[Run, torch.Tensor]:
        steps = 3 if precision == "float32" else 1  # what is written of any weights
        return trained(models()[name], tmp_path_factory.mktemp("entry"), steps, precision=precision)

    return made


@pytest.fixture(autouse=True, scope="module")
def _one_table_of_operators() -> Iterator[None]:
    """At every export torch parses the source of five hundred ONNX operators; here it does so once.

    So it does with its own composite operators, to which nothing here adds one.
    """
    from torch._export import utils
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_materialize_cpp_cia_ops", functools.cache(utils._materialize_cpp_cia_ops))
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib))
        )
        yield


def takes_one_shape(entry: Entry) -> bool:
    """Whether the entry's smallest data are one tensor of real numbers, of one shape."""
    batch = InOrder(tiny_data(entry).splits["train"], 8)[0]
    return len(batch.inputs) == 1 and batch.inputs[0].is_floating_point()


def refused(run: Run, format: str) -> None:
    """A model of other inputs has no file but its weights."""
    with pytest.raises(ValueError, match=r"takes inputs of one shape: .* format state writes its weights"):
        margin.export(run, format=format, data=tiny_data(run.entry))


def expected(run: Run, x: torch.Tensor, weights: str = "best") -> torch.Tensor:
    with torch.no_grad():
        return margin.load(run, weights)(x)


def opened(path: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """What an ONNX file computes."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"input": x.numpy()})[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A table's run, from a file, that averages its weights and ended far from its best ones."""
    directory = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    bought = rng.integers(2, size=80)
    rows = [f"{rng.normal(50, 9):.3f},{['red', 'blue'][i % 2]},{['no', 'yes'][bought[i]]}" for i in range(80)]
    (directory / "d.csv").write_text("\n".join(["size,color,target", *rows]))
    training = Training(epochs=40, lr=0.02, average=0.9)
    return margin.train("mlp", directory / "d.csv", training=training, out=directory / "run")


# round trips


@ENTRIES
def test_a_state_dict_fits_the_module_that_its_recipe_builds(entry: Entry, three_steps: ThreeSteps) -> None:
    data = tiny_data(entry)
    run, _ = three_steps(entry.name)
    x, *rest = InOrder(data.splits["train"], len(data.splits["train"]))[0].inputs
    path = margin.export(run, data=data).path
    assert path == run.path / "model.safetensors"
    state = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = {name: json.loads(text) for name, text in file.metadata().items() if name != "format"}
    first, last = (
        {k.removeprefix(prefix): state.pop(k) for k in list(state) if k.startswith(prefix)}
        for prefix in ("preprocess.", "outcome.")
    )
    core = build(metadata["recipe"])
    core.load_state_dict(state, strict=True)
    with torch.no_grad():
        seen = (x - first["mean"]) / first["std"] if first else x
        outputs = core.eval()(seen, *rest)
        outputs = (outputs - last["mean"]) / last["std"] if last else outputs
        assert torch.equal(outputs, margin.load(run)(x, *rest))
    assert metadata["preprocess"]["kind"] == ("standardize" if first else "identity")


ESTIMATES = tuple(
    f"generative/{name}"
    for name in (
        "realnvp_images",
        "diffusion",
        "conditional_diffusion",
        "image_diffusion",
        "conditional_image_diffusion",
        "flow_matching",
        "conditional_flow_matching",
        "image_flow_matching",
    )
)
"""Entries whose density is estimated by many passes of a network."""


def refused_as_an_estimate(run: Run, format: str) -> None:
    with pytest.raises(ValueError, match=r"estimates its density by many; format state writes its weights"):
        margin.export(run, format=format)


UNTRACED = (
    "bayes/gp:classes",
    "bayes/hmc",
    "bayes/hmc:values",
    "bayes/laplace",
    "bayes/mc_dropout",
    "bayes/mc_dropout:values",
    "bayes/sgld",
    "bayes/sgld:values",
)
"""Entries whose steps depend on their numbers: a search for a mode, masks or weights that are drawn."""


def refused_as_untraced(run: Run, format: str) -> None:
    with pytest.raises(ValueError, match=r"must not depend on the values it is given: .* cannot be traced"):
        margin.export(run, format=format)


# up to six seconds: torch.export traces every operation of a deep network
@ENTRIES
def test_a_torch_program_gives_the_same_bits(entry: Entry, three_steps: ThreeSteps) -> None:
    check_a_torch_program(entry, "float32", three_steps)


@pytest.mark.parametrize("entry", first_of_their_data(), ids=lambda entry: entry.name)
def test_a_torch_program_of_float64_gives_the_same_bits(entry: Entry, three_steps: ThreeSteps) -> None:
    check_a_torch_program(entry, "float64", three_steps)


def check_a_torch_program(entry: Entry, precision: str, three_steps: ThreeSteps) -> None:
    run, x = three_steps(entry.name, precision)
    if not takes_one_shape(entry):
        refused(run, "torch")
        return
    if entry.name in ESTIMATES:
        refused_as_an_estimate(run, "torch")
        return
    if entry.name in UNTRACED:
        refused_as_untraced(run, "torch")
        return
    x = x.to(getattr(torch, precision))
    exported = margin.export(run, format="torch")
    extra = {"margin.json": ""}
    program = torch.export.load(exported.path, extra_files=extra).module()
    assert json.loads(extra["margin.json"]) == exported.description
    for size in SIZES:
        outputs, wanted = program(x[:size]), expected(run, x[:size])
        most = (
            1e4 * torch.finfo(x.dtype).eps
            if re.split("[_:]", entry.name.removeprefix("sequence/"))[0] in ROUNDED
            else 0.0
        )
        assert (outputs - wanted).abs().max() <= most
        assert outputs.dtype == x.dtype


ROUNDED = ("elman", "mingru", "minlstm", "lru", "lstm", "gru")
"""Entries whose recurrence takes another order of operations in a program: it differs by rounding."""

WITHOUT_ONNX = {
    "classic/kernel_ridge": "aten::_cdist_forward",
    "classic/ppca": "aten::_linalg_solve_ex",
    "classic/ppca_em": "aten::_linalg_solve_ex",
    "classic/factor_analysis": "aten::_linalg_solve_ex",
    "generative/mixture": "aten::linalg_solve_triangular",
    "generative/gplvm": "aten::linalg_cholesky_ex",
    "sequence/lru:values": "aten::expand",  # of complex numbers
    "sequence/lru:series": "aten::expand",
}
"""Entries that use what ONNX has no operator for."""


INEXACT = ("bayes/gp",)
"""Entries that take small differences of large numbers, which other kernels round otherwise."""


# up to eight seconds: torch's exporter, and a session of ONNX Runtime
@ENTRIES
def test_an_onnx_model_gives_the_same_numbers(entry: Entry, three_steps: ThreeSteps) -> None:
    run, x = three_steps(entry.name)
    if not takes_one_shape(entry):
        refused(run, "onnx")
        return
    if entry.name in ESTIMATES:
        refused_as_an_estimate(run, "onnx")
        return
    if entry.name in UNTRACED:
        refused_as_untraced(run, "onnx")
        return
    if entry.name in INEXACT:
        with pytest.raises(ArithmeticError, match=r"an ONNX file must give torch's outputs to 1e-05"):
            margin.export(run, format="onnx")
        return
    if lacking := WITHOUT_ONNX.get(entry.name):
        with pytest.raises(ValueError, match=f"{entry.name} uses {lacking}, for which there is none"):
            margin.export(run, format="onnx")
        assert not list(run.path.glob("*.onnx"))
        return
    exported = margin.export(run, format="onnx")
    program = opened(exported.path)
    for size in SIZES:
        outputs, wanted = program(x[:size]), expected(run, x[:size])
        assert outputs.shape == wanted.shape
        assert (outputs - wanted).abs().max() <= 1e-5
    model = onnx.load(exported.path)
    onnx.checker.check_model(model, full_check=True)
    properties = {prop.key: json.loads(prop.value) for prop in model.metadata_props}
    assert properties == exported.description
    assert properties["inputs"] == [{"shape": ["N", *x.shape[1:]], "dtype": "float32"}]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert exported.difference is not None
    assert exported.difference <= 1e-5


def test_dropout_and_batch_normalization_are_those_of_use(tmp_path: Path) -> None:
    data = tiny_data(models()["feedforward/mlp"])
    options = {"dropout": 0.5, "norm": "batch"}
    run = margin.train("mlp", data, options, Training(max_steps=5), out=tmp_path / "run")
    x = data.splits["train"].inputs[0].float()
    exported = margin.export(run, format="onnx")
    assert (opened(exported.path)(x[:7]) - expected(run, x[:7])).abs().max() <= 1e-5
    program = torch.export.load(margin.export(run, format="torch").path).module()
    assert torch.equal(program(x[:7]), expected(run, x[:7]))
    assert "layers.2.running_var" in load_file(margin.export(run).path)


@pytest.mark.parametrize("weights", ["best", "last", "initial"])
def test_the_weights_are_those_asked_for(run: Run, weights: str, tmp_path: Path) -> None:
    x = torch.tensor([[41.5, 1.0, 0.0], [61.0, 0.0, 1.0]])
    path = margin.export(run, tmp_path / "m.pt2", format="torch", weights=weights).path
    assert torch.equal(torch.export.load(path).module()(x), expected(run, x, weights))
    others = [expected(run, x, other) for other in ("best", "last", "initial") if other != weights]
    assert all(not torch.equal(expected(run, x, weights), other) for other in others)


# what a file says


def test_a_file_says_what_it_takes_and_returns(run: Run, tmp_path: Path) -> None:
    exported = margin.export(run, tmp_path / "m.onnx", format="onnx")
    found = exported.as_json()
    assert found["features"] == ["size", "color=blue", "color=red"]
    assert found["classes"] == ["no", "yes"]
    assert found["inputs"] == [{"shape": ["N", 3], "dtype": "float32"}]
    assert found["outputs"] == [{"shape": ["N", 2], "dtype": "float32"}]
    assert found["bytes"] == exported.path.stat().st_size
    assert found["target"] == "target"
    assert found["recipe"] == run.record["recipe"]
    text = str(exported)
    assert "takes    float32 (N, 3), in the units of d.csv, not standardized: size, color=blue" in text
    assert "returns  float32 (N, 2), a score (logit) for each class: no, yes" in text
    assert "on 16 examples of d.csv (test part)" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("classic/perceptron", "float32 (N), a signed score, positive for "),
        ("classic/linear_regression", "float32 (N), values"),
        ("vision/lenet5", "float32 (N, 10), a score (logit) for each class: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
    ],
)
def test_each_task_is_told_in_words(name: str, words: str, tmp_path: Path) -> None:
    run, _ = trained(models()[name], tmp_path)
    assert f"returns  {words}" in str(margin.export(run))


def test_no_file_is_a_pickle(run: Run, tmp_path: Path) -> None:
    path = margin.export(run, tmp_path / "m.pt2", format="torch").path
    with zipfile.ZipFile(path) as archive:
        starts = {name: archive.read(name)[:2] for name in archive.namelist()}
    # a pickle of protocol 2 and later begins with its number; torch.save makes a zip of one
    assert [name for name, start in starts.items() if start[:1] == b"\x80" or start == b"PK"] == []


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_file_names_no_path_of_this_machine_and_is_the_same_again(
    run: Run, format: str, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{i}{margin.runs.exporting.ENDINGS[format]}" for i in range(2)]
    contents = [margin.export(run, path, format=format).path.read_bytes() for path in paths]
    if format == "torch":
        with zipfile.ZipFile(paths[0]) as archive:
            contents[0] = b"".join(archive.read(name) for name in archive.namelist())
            contents[1] = b"".join(zipfile.ZipFile(paths[1]).read(name) for name in archive.namelist())
    assert contents[0] == contents[1]
    assert str(Path(torch.__file__).parent).encode() not in contents[0]
    assert str(Path(margin.__file__).parent).encode() not in contents[0]


def test_inputs_of_the_check_need_no_data(run: Run, tmp_path: Path) -> None:
    entry = models()["feedforward/mlp"]
    own, _ = trained(entry, tmp_path)
    drawn = margin.export(own, tmp_path / "a.onnx", format="onnx")
    assert drawn.checked == "16 normal inputs of the training part's mean and variance"
    handed = margin.export(own, tmp_path / "b.onnx", format="onnx", data=tiny_data(entry))
    assert handed.checked.endswith("(test part)")
    with pytest.raises(ValueError, match="their fingerprint differs"):
        margin.export(own, tmp_path / "c.onnx", format="onnx", data=tiny_data(models()["classic/perceptron"]))
    assert not (tmp_path / "c.onnx").exists()
    table = Path(run.record["arguments"]["data"]["source"])
    content = table.read_text()
    table.unlink()
    try:
        assert "normal inputs" in margin.export(run, tmp_path / "d.onnx", format="onnx").checked
    finally:
        table.write_text(content)


def test_data_without_a_shape_are_asked_for(tmp_path: Path) -> None:
    whole = tiny_data(models()["vision/lenet5"])
    data = Data(name="bare", splits=whole.splits, spec=whole.spec, preprocess=whole.preprocess)
    run = margin.train("lenet5", data, training=Training(max_steps=1), out=tmp_path / "run")
    with pytest.raises(ValueError, match="must tell the shape of an input: it does not; hand its data over"):
        margin.export(run)
    assert margin.export(run, data=data).description["inputs"][0]["shape"] == ["N", 1, 8, 8]


# refusals


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (None, {"format": "onyx"}, "format must be one of state, torch, onnx: got 'onyx'"),
        (None, {"weights": "first"}, "weights must be one of best, last, initial: got 'first'"),
        ("m.onnx", {}, "a file of format state must end in .safetensors: got m.onnx"),
        ("gone/m.safetensors", {}, "no such directory"),
        ("there.safetensors", {}, "there.safetensors exists: choose another path"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(
    run: Run, path: str | None, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "there.safetensors").write_text("mine")
    with pytest.raises((ValueError, OSError), match=message):
        margin.export(run, path and tmp_path / path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["there.safetensors"]
    assert (tmp_path / "there.safetensors").read_text() == "mine"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named_with_the_remedy(
    run: Run, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"onnx needs {package}: pip install 'margin\[onnx\]'"):
        margin.export(run, tmp_path / "m.onnx", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_differs_is_not_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = margin.runs.exporting.onnx_bytes

    def moved(module: Any, inputs: Any, description: Any) -> bytes:
        model = onnx.load_from_string(whole(module, inputs, description))
        for tensor in model.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if values.dtype == np.float32 and values.ndim == 2:
                tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(1.001), tensor.name))
        return model.SerializeToString()

    monkeypatch.setattr(margin.runs.exporting, "onnx_bytes", moved)
    with pytest.raises(ArithmeticError, match="must give torch's outputs to 1e-05: got a difference of"):
        margin.export(run, tmp_path / "m.onnx", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_onnxruntime_lacks_is_told(tmp_path: Path) -> None:
    run, _ = trained(models()["vision/lenet5"], tmp_path, precision="float64")
    with pytest.raises(ValueError, match=r"run the model: .*Resize.*; train with precision float32"):
        margin.export(run, format="onnx")
    assert not (run.path / "model.onnx").exists()


def test_torchs_remarks_on_itself_are_not_shown(run: Run, tmp_path: Path) -> None:
    shown: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = shown.append
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.addHandler(handler)
    try:
        margin.export(run, tmp_path / "m.onnx", format="onnx")
    finally:
        logger.removeHandler(handler)
    assert shown == []
    assert logger.level == level


def test_exporting_leaves_no_trace(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {p: p.read_bytes() for p in run.path.iterdir()}
    before = torch.get_rng_state()
    for name, format in (("a.safetensors", "state"), ("b.pt2", "torch"), ("c.onnx", "onnx")):
        margin.export(run, tmp_path / name, format=format)
    assert {p: p.read_bytes() for p in run.path.iterdir()} == files
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")
