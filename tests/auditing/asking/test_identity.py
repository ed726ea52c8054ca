"""What was audited is known by its digests: each change is seen by the digest that is named for it."""

import copy
import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path

import pytest
import torch
from torch import nn

from margin.auditing.asking.identity import differing, identity_of, outputs_digest
from margin.auditing.subject.predictions import subject_of_predictor
from margin.auditing.subject.subjects import subject_of
from margin.core.tasks import HALFSPACE
from margin.core.types import Batch, Domain
from margin.data.examples import Arrays, InOrder
from margin.engine.loop import risk

SOURCE = """
import helper
from torch import nn

class Net(nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.activation = lambda x: x.relu()

    @property
    def scale(self):
        return 2.0

    def forward(self, x):
        return self.out(helper.twice(self.activation(x))) * self.gain
"""
HELPER = "LIMIT = 2.0\ndef twice(x):\n    return inner(x)\ndef inner(x):\n    return LIMIT * x\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """The subject of a module that these sources define; its weights and data are the same each time."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def build(source=SOURCE, helper=HELPER, **given):
        for name, text in (("net_of_a_test", source), ("helper", helper)):
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        from margin.auditing.asking import identity

        identity._version_of.cache_clear()
        torch.manual_seed(0)
        model = importlib.import_module("net_of_a_test").Net()
        x, y = torch.rand(12, 4), torch.arange(12) % 3
        return subject_of(model, (x, y), **{"train": (x + 1, y), "domain": (0.0, 1.0), **given})

    return build


def test_the_same_is_the_same_and_comments_do_not_count(built):
    first = identity_of(built())
    assert identity_of(built()) == first
    commented = SOURCE.replace("import helper", "# why\n\n\nimport helper")
    assert identity_of(built(commented, f"# what\n\n{HELPER}")) == first
    assert len(set(first.values())) == 7


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("x.relu()", "x.tanh()", ["code"]),
        ("return 2.0", "return 3.0", ["code"]),
        ("helper.twice", "helper.inner", ["code"]),
        ("return LIMIT * x", "return x * LIMIT", ["code"]),
        ("gain = 1.0", "gain = 1.5", ["settings"]),
        ("LIMIT = 2.0", "LIMIT = 3.0", ["settings"]),
    ],
)
def test_a_change_of_the_models_source_is_seen(built, old, new, parts):
    changed = built(SOURCE.replace(old, new), HELPER.replace(old, new))
    assert set(parts) <= set(differing(identity_of(built()), identity_of(changed)))
    assert not {"weights", "held-out data", "training data"} & set(
        differing(identity_of(built()), identity_of(changed))
    )


DETOUR = """
import functools
{imports}
from torch import nn

@functools.cache
def three():
    return 3.0

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.held = {held}

    def forward(self, x):
        {first}
        return super().forward(x) * {used}
"""
DEEP = f"{HELPER}inner.by = 7.0\nimport types\ndeep = types.ModuleType('deep')\ndeep.SCALE = 5.0\n"
REACHED = {
    "a function that keeps its answers": ("", "", "three()", "return 3.0", "return 4.0", "code"),
    "a name imported inside": ("", "from helper import LIMIT", "LIMIT", "LIMIT = 2", "LIMIT = 3", "settings"),
    "a module that is held": ("helper", "", "self.held.inner(1)", "LIMIT = 2", "LIMIT = 3", "settings"),
    "a module of a module": ("", "", "helper.deep.SCALE", "SCALE = 5", "SCALE = 6", "settings"),
    "an attribute of a function": ("", "", "helper.inner.by", "by = 7", "by = 8", "settings"),
}
"""What a module holds, what forward does first, by what it multiplies, and how that changes."""


@pytest.mark.parametrize("way", REACHED)
def test_what_forward_reaches_by_a_detour_is_seen(built, way):
    held, first, used, old, new, part = REACHED[way]
    imports = "" if first else "import helper"
    source = DETOUR.format(imports=imports, held=held or None, first=first or "pass", used=used)
    one, same, other = (
        identity_of(built(*(text.replace(old, put) for text in (source, DEEP)))) for put in (old, old, new)
    )
    assert one == same
    assert differing(one, other) == [part]


def one_bit(subject):
    bias = subject.model.out.bias
    with torch.no_grad():
        bias.view(torch.int32)[1] ^= 1


def freeze(subject):
    subject.model.out.weight.requires_grad_(False)


def switch(subject):
    subject.model.out.training = False


def add_attribute(subject):
    subject.model.slope = 0.1


def hook(subject):
    subject.model.out.register_forward_hook(lambda *call: None)


def gradient_hook(subject):
    subject.model.out.weight.register_hook(lambda slope: 2 * slope)


def swap(part, name, subject):
    batch = getattr(subject, part)[0]
    tensor = batch.inputs[0] if name == "inputs" else batch.targets
    tensor[0], tensor[1] = tensor[1].clone(), tensor[0].clone()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (one_bit, "weights"),
        (freeze, "weights"),
        (switch, "settings"),
        (add_attribute, "settings"),
        (hook, "settings"),
        (gradient_hook, "settings"),
        (partial(swap, "test", "inputs"), "held-out data"),
        (partial(swap, "test", "targets"), "held-out data"),
        (partial(swap, "train", "inputs"), "training data"),
    ],
)
def test_a_change_of_the_model_or_the_data_is_seen_by_its_digest(subject, change, part):
    subject = replace(subject, train=copy.deepcopy(subject.test))
    before = identity_of(subject)
    subject.kept.clear()
    change(subject)
    assert part in differing(before, identity_of(subject))
    assert set(differing(before, identity_of(subject))) <= {part, "code"}


@pytest.mark.parametrize(
    "given",
    [
        {"task": HALFSPACE},
        {"domain": Domain(torch.tensor(0.0), torch.tensor(2.0))},
        {"assumed": ("outputs: logits",)},
        {"class_names": ("a", "b", "c")},
        {"independent": False},
        {"history": ({"step": 1, "loss": 0.5},)},
        {"remark": "the model draws at random"},
        {"lacks": "has no gradient"},
        {"groups": "patient"},
        {"feature_names": ("a", "b", "c", "d")},
        {"label_names": ("a", "b")},
        {"initial": nn.Linear(4, 3)},
    ],
)
def test_what_is_said_of_a_subject_are_settings(subject, given):
    subject = replace(subject, domain=Domain(torch.tensor(0.0), torch.tensor(1.0)))
    differ = differing(identity_of(subject), identity_of(replace(subject, **given)))
    assert differ and set(differ) <= {"settings", "weights"}


def test_a_default_of_a_named_argument_is_a_setting(subject):
    def scaled(by):
        def objective(model, batch, generator, *, factor=by):
            return factor * risk(subject.task)(model, batch, generator)

        return identity_of(replace(subject, objective=objective))

    assert scaled(1.0) == scaled(1.0)
    assert differing(scaled(1.0), scaled(2.0)) == ["settings"]


def test_weights_of_examples_are_data(subject):
    def weighted(by):
        return replace(
            subject, test=[b._replace(weight=torch.full((len(b.targets),), by)) for b in subject.test]
        )

    assert differing(identity_of(weighted(1.0)), identity_of(weighted(2.0))) == ["held-out data"]


def test_batches_count_where_examples_read_each_other(subject):
    inputs, targets = (
        torch.cat([part(b) for b in subject.test]) for part in (lambda b: b.inputs[0], lambda b: b.targets)
    )
    joined = Batch((inputs,), targets)
    for independent in (True, False):
        one, two = (replace(subject, train=t, independent=independent) for t in (subject.test, [joined]))
        assert differing(identity_of(one), identity_of(two)) == ([] if independent else ["settings"])


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")
def test_the_scale_of_quantized_weights_is_seen(subject):
    def identity(scale):
        subject.model.table = torch.quantize_per_tensor(scale * torch.arange(4.0), scale, 0, torch.qint8)
        return identity_of(subject)

    assert differing(identity(0.5), identity(0.25)) == ["weights"]


def test_a_second_model_counts_among_the_weights(subject):
    other = copy.deepcopy(subject.model)
    one = identity_of(replace(subject, reference_model=other))
    assert differing(identity_of(subject), one) == ["weights", "settings"]
    one_bit(replace(subject, model=other))
    assert differing(one, identity_of(replace(subject, reference_model=other))) == ["weights"]


def test_an_objective_is_known_by_what_it_encloses(subject):
    def scaled(by):
        return lambda model, batch, generator: by * risk(subject.task)(model, batch, generator)

    one, same, other = (identity_of(replace(subject, objective=scaled(by))) for by in (1.0, 1.0, 2.0))
    assert one == same
    assert differing(one, other) == ["settings"]


def test_of_large_training_examples_evenly_spaced_batches_are_digested(subject, monkeypatch):
    x = torch.rand(80, 4)
    subject = replace(subject, train=[Batch((part,)) for part in x.split(10)])  # 8 batches of 160 bytes
    whole = identity_of(subject)["training data"]
    monkeypatch.setattr("margin.auditing.asking.identity.MOST_BYTES", 8 * 160 // 2)
    subject.kept.clear()
    half = identity_of(subject)["training data"]
    assert half != whole
    for batch, seen in ((0, True), (1, False), (6, True)):
        subject.kept.clear()
        before = subject.train[batch].inputs[0].clone()
        subject.train[batch].inputs[0][3] += 1
        assert (identity_of(subject)["training data"] != half) is seen
        subject.train[batch].inputs[0].copy_(before)


def test_examples_that_belong_together_are_seen(subject):
    def digest(*groups):
        examples = Arrays(
            (torch.ones(4, 2),), torch.zeros(4), groups=torch.tensor(groups) if groups else None
        )
        return identity_of(replace(subject, test=InOrder(examples, 2)))["held-out data"]

    assert digest(0, 0, 1, 1) == digest(0, 0, 1, 1)
    assert len({digest(), digest(0, 0, 1, 1), digest(0, 1, 0, 1)}) == 3


def test_outputs_are_compared_where_both_audits_have_them(subject):
    one = {"weights": "a", "outputs": "b"}
    assert differing(one, {"weights": "a"}) == []
    assert differing(one, {"weights": "a", "outputs": "c"}) == ["outputs"]
    before = outputs_digest(subject)
    subject.kept.clear()
    assert outputs_digest(subject) == before
    subject.kept.clear()
    one_bit(subject)
    assert outputs_digest(subject) != before


def test_what_cannot_be_compared_is_the_same_as_itself_alone(subject):
    class Odd:
        def __reduce_ex__(self, protocol):
            raise RuntimeError("not me")

    subject.model.odd = Odd()
    assert identity_of(subject) == identity_of(subject)
    before = identity_of(subject)
    subject.model.odd = Odd()
    assert differing(before, identity_of(subject)) == ["settings"]


def test_a_forest_is_known_by_its_trees():
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_iris(return_X_y=True)

    def identity(**options):
        forest = RandomForestClassifier(3, random_state=0, **options).fit(x, y)
        return identity_of(subject_of_predictor(forest, (x, y)))

    assert identity() == identity()
    assert "weights" in differing(identity(), identity(max_depth=2))


class Wrapped(nn.Module):
    """What modules hold: partial functions, configurations, torch's own functions and layers."""

    def __init__(self):
        super().__init__()
        self.out = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.first, self.second = partial(nn.functional.softmax, dim=-1), torch.relu
        self.config = {"widths": [1, 2], "shape": torch.Size([2]), "type": torch.float32}

    again = partialmethod(nn.Module.forward)

    def forward(self, x):
        return self.first(self.second(self.out(x[:, None])[:, 0]))


def wrapped_identity() -> dict[str, str]:
    torch.manual_seed(0)
    made = Wrapped(), (torch.rand(6, 4), torch.arange(6) % 4)
    return identity_of(subject_of(*made, task="probabilities"))


def test_another_process_finds_the_same(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    here = importlib.import_module("test_identity").wrapped_identity()  # a class is named by its module
    script = "import json, test_identity as test; print(json.dumps(test.wrapped_identity()))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1"}
    env["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == here


@pytest.mark.parametrize(
    ("folder", "beside", "known"),
    [
        ("site-packages", "", True),  # of an environment that this one builds on, or of the user
        ("lib/dist-packages", "", True),
        ("target", "layers_of_a_test-2.0.dist-info", True),  # pip install --target
        ("target", "other-2.0.dist-info", False),
        ("project", "", False),
    ],
)
def test_an_installed_package_is_known_by_its_version_wherever_it_lies(
    tmp_path, monkeypatch, folder, beside, known
):
    """Else the code of a whole library would be read, and imported, for what one of its models may call."""
    from margin.auditing.asking import identity

    place = tmp_path / folder / "layers_of_a_test"
    place.mkdir(parents=True)
    if beside:
        (place.parent / beside).mkdir()
    monkeypatch.syspath_prepend(str(place.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for slope, version in ((0.1, "2.0"), (0.2, "2.0"), (0.2, "2.1")):
        forward = (
            f"    forward = lambda self, x: nn.functional.leaky_relu(nn.Linear.forward(self, x), {slope})"
        )
        text = f"from torch import nn\n__version__ = '{version}'\nclass Leaky(nn.Linear):\n{forward}\n"
        (place / "__init__.py").write_text(text)
        monkeypatch.delitem(sys.modules, place.name, raising=False)
        importlib.invalidate_caches()
        identity._version_of.cache_clear()
        torch.manual_seed(0)
        model = importlib.import_module(place.name).Leaky(4, 3)
        found.append(identity_of(subject_of(model, (torch.ones(6, 4), torch.arange(6) % 3))))
    identity._version_of.cache_clear()
    assert ("code" in differing(*found[:2])) is not known
    assert ("settings" in differing(*found[1:])) is known
