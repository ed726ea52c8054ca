"""Checkpoints: what is packed comes out the same, files are whole, and another model's weights are named."""

import json
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from margin.engine.checkpoints import fill, load_module, load_state, pack, save_state, unpack, write_whole
from margin.engine.loop import State


def kinds(tree: object) -> object:
    """A tree with the type of everything in it."""
    if isinstance(tree, dict):
        return {(type(k), k): kinds(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return (type(tree), [kinds(item) for item in tree])
    return (type(tree), tree.tolist() if isinstance(tree, torch.Tensor) else tree)


def test_a_tree_comes_out_as_it_went_in() -> None:
    tree = {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.arange(6).reshape(2, 3).T}, 10: {}},
        "groups": [{"betas": (0.9, 0.999), "fused": True, "foreach": None, "lr": 1e-3, "params": [0, 10]}],
        "deep": ((1, [2, (3,)]), []),
    }
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(pack(tree, "", tensors))
    assert kinds(unpack(json.loads(text), tensors)) == kinds(tree)


def test_tensors_that_share_memory_are_kept_apart(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    save_state(tmp_path / "s.safetensors", State({"model": model}))
    other = State({"model": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))})
    load_state(tmp_path / "s.safetensors", other)
    assert torch.equal(other.model[0].weight, model[0].weight)
    assert torch.equal(other.model[1].weight, model[0].weight)


def test_a_file_is_on_the_disk_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, sync, replace = [], os.fsync, Path.replace

    def fsync(number: int) -> None:
        status = os.fstat(number)
        events.append("directory" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        sync(number)

    def renamed(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    write_whole(tmp_path / "f", b"12345")
    assert events == ["5 bytes", "rename", "directory"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"12345"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"


def trained(steps: int, model: nn.Module) -> State:
    state = State({"model": model}, {"": torch.optim.AdamW(model.parameters(), lr=0.1)}, seed=4)
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        state.optimizers[""].step()
        state.step += 1
    return state


def test_an_optimizer_goes_on_where_it_stopped(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = nn.Linear(2, 1)
    state = trained(3, first)
    save_state(tmp_path / "s.safetensors", state)
    second = nn.Linear(2, 1)
    fresh = trained(0, second)
    load_state(tmp_path / "s.safetensors", fresh)
    assert kinds(fresh.optimizers[""].state_dict()) == kinds(state.optimizers[""].state_dict())
    for model, optimizer in ((first, state.optimizers[""]), (second, fresh.optimizers[""])):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert torch.equal(first.weight, second.weight)


def test_equal_states_leave_equal_bytes(tmp_path: Path) -> None:
    """safetensors draws the order of its metadata anew in every call: in half, two names are turned."""
    torch.manual_seed(0)
    state, file = trained(1, nn.Linear(2, 1)), tmp_path / "s.safetensors"
    contents = set()
    for _ in range(40):  # by chance alone they would be equal in 2^-39
        save_state(file, state)
        contents.add(file.read_bytes())
    assert len(contents) == 1
    with safe_open(file, "pt") as kept:
        assert list(kept.metadata()) != []
        assert torch.equal(kept.get_tensor("modules/model/weight"), state.model.state_dict()["weight"])


def test_one_module_is_read_by_its_name(tmp_path: Path) -> None:
    modules = {"model": nn.Linear(2, 1), "average": nn.Linear(2, 1)}
    save_state(tmp_path / "s.safetensors", State(modules))
    for name, module in modules.items():
        found = nn.Linear(2, 1)
        load_module(tmp_path / "s.safetensors", name, found)
        assert torch.equal(found.weight, module.weight)


def test_weights_of_another_model_are_named_and_change_nothing() -> None:
    module = nn.Linear(2, 1)
    before = module.weight.clone()
    tensors = {"weight": torch.zeros(3, 3), "scale": torch.zeros(1)}
    with pytest.raises(ValueError) as caught:
        fill(module, tensors, "w.pt")
    for word in ("w.pt", "bias", "scale", "weight", "(3, 3)", "(1, 2)"):
        assert word in str(caught.value)
    assert torch.equal(module.weight, before)
    for odd in ({"weight": before}, {**module.state_dict(), "scale": torch.zeros(1)}):
        with pytest.raises(ValueError, match=r"missing: bias|unexpected: scale"):
            fill(module, odd, "w.pt")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(1, 2)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"w\.safetensors is damaged or no checkpoint of margin"):
        load_module(tmp_path / "w.safetensors", "model", nn.Linear(2, 1))
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_module(tmp_path / "gone.safetensors", "model", nn.Linear(2, 1))


def test_what_a_step_keeps_for_itself_is_part_of_every_checkpoint(tmp_path: Path) -> None:
    """A copy that a step made at its second step comes back when the resumed step asks for it."""

    def made() -> nn.Module:
        module = nn.Linear(1, 1)
        nn.init.zeros_(module.weight)
        return module

    state = State({"model": nn.Linear(1, 1)})
    kept = state.kept("copy", made)
    assert state.kept("copy", made) is kept
    nn.init.constant_(kept.weight, 7.0)
    save_state(tmp_path / "a.safetensors", state)
    again = State({"model": nn.Linear(1, 1)})
    load_state(tmp_path / "a.safetensors", again)
    save_state(tmp_path / "b.safetensors", again)  # before it has asked: nothing is lost
    last = State({"model": nn.Linear(1, 1)})
    load_state(tmp_path / "b.safetensors", last)
    for resumed in (again, last):
        assert resumed.kept("copy", made).weight.item() == 7.0
        assert "copy" in resumed.modules and not resumed.waiting
