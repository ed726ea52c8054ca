"""Weights of GPT2LMHeadModel, the BERT models and MarianMTModel of the library transformers, by our names."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from margin.engine.transfer import Pretrained, joined, renamed

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}
"""Their names of activations, and ours."""


def check_settings(config: Mapping[str, Any], wanted: Mapping[str, Any], what: str) -> None:
    """Refuse settings of a configuration that our network has at one value only.

    Raises:
        ValueError: One has another value.
    """
    for name, value in wanted.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} of {what} must be {value!r}: got {config[name]!r}")


def activation(config: Mapping[str, Any], key: str, default: str) -> str:
    """Our name of an activation.

    Raises:
        ValueError: We have none of that name.
    """
    theirs = config.get(key, default)
    if theirs not in ACTIVATIONS:
        raise ValueError(f"{key} must be one of {', '.join(ACTIVATIONS)}: got {theirs!r}")
    return ACTIVATIONS[theirs]


def depth_of(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """How many blocks there are of that prefix, which ends in a dot."""
    return len({name.removeprefix(prefix).split(".")[0] for name in tensors if name.startswith(prefix)})


GPT_BLOCK = r"^(?:transformer\.)?h\.(\d+)\."
GPT_NAMES = (
    (r"^(transformer\.)?wte\.", "embedding."),
    (r"^(transformer\.)?wpe\.", "positions."),
    (r"^(transformer\.)?ln_f\.", "norm."),
    (GPT_BLOCK + r"attn\.(bias|masked_bias)$", ""),
    (GPT_BLOCK + r"ln_(1|2)\.", r"blocks.\1.norm\2."),
    (GPT_BLOCK + r"attn\.c_attn\.", r"blocks.\1.attention.queries_keys_values."),
    (GPT_BLOCK + r"attn\.c_proj\.", r"blocks.\1.attention.output."),
    (GPT_BLOCK + r"mlp\.c_fc\.", r"blocks.\1.mlp.0."),
    (GPT_BLOCK + r"mlp\.c_proj\.", r"blocks.\1.mlp.3."),
    (r"^lm_head\.", "head."),
)
"""Patterns of GPT-2's names, and ours; "" has no part in the model."""

GPT_SETTINGS = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def gpt_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a GPT-2, whose matrices are stored transposed (its Conv1D).

    Args:
        tensors: By their names.
        config: What ``config.json`` says; of {} the heads have 64 numbers each, as all of the paper.

    Returns:
        None where the names are not that library's.

    Raises:
        ValueError: A tensor is none of a GPT-2's, or a setting is one that ours has not.
    """
    if not any(name.endswith("wte.weight") for name in tensors):
        return None
    check_settings(config, GPT_SETTINGS, "a GPT-2")
    ours = renamed(tensors, GPT_NAMES, "a GPT-2 of transformers")
    for name in ours:
        if name.startswith("blocks.") and ours[name].ndim == 2:
            ours[name] = ours[name].T.contiguous()
    table = ours["embedding.weight"]
    tied = torch.equal(ours.setdefault("head.weight", table), table)
    places, width = ours["positions.weight"].shape
    options = {
        "width": width,
        "depth": depth_of(ours, "blocks."),
        "heads": config.get("n_head", max(1, width // 64)),
        "hidden": len(ours["blocks.0.mlp.0.weight"]),
        "places": places,
        "positions": "learned",
        "activation": activation(config, "activation_function", "gelu_new"),
        "readout": "tied" if tied else "own",
        "eps": config.get("layer_norm_epsilon", 1e-5),
    }
    return Pretrained(ours, options, {"vocab_size": len(table)})


BERT_BLOCK = r"^(?:bert\.)?encoder\.layer\.(\d+)\."
BERT_NAMES = (
    (r"^(bert\.)?embeddings\.position_ids$", ""),
    (r"^(bert\.)?embeddings\.word_embeddings\.", "body.embedding."),
    (r"^(bert\.)?embeddings\.position_embeddings\.", "body.positions."),
    (r"^(bert\.)?embeddings\.token_type_embeddings\.", "body.segments."),
    (r"^(bert\.)?embeddings\.LayerNorm\.", "body.norm."),
    *(
        (BERT_BLOCK + rf"attention\.self\.{part}\.", rf"body.blocks.\1.attention.{part}.")
        for part in ("query", "key", "value")
    ),
    (BERT_BLOCK + r"attention\.output\.dense\.", r"body.blocks.\1.attention.output."),
    (BERT_BLOCK + r"attention\.output\.LayerNorm\.", r"body.blocks.\1.norm1."),
    (BERT_BLOCK + r"intermediate\.dense\.", r"body.blocks.\1.mlp.0."),
    (BERT_BLOCK + r"output\.dense\.", r"body.blocks.\1.mlp.3."),
    (BERT_BLOCK + r"output\.LayerNorm\.", r"body.blocks.\1.norm2."),
    (r"^(bert\.)?pooler\.dense\.", "pooler."),
    (r"^(classifier|qa_outputs)\.", "head."),
    (r"^cls\.predictions\.transform\.dense\.", "transform."),
    (r"^cls\.predictions\.transform\.LayerNorm\.", "transform_norm."),
    (r"^cls\.predictions\.bias$", "bias"),
    (r"^cls\.predictions\.decoder\.(weight|bias)$", ""),
    (r"^cls\.seq_relationship\.", "next."),
)
"""Patterns of BERT's names, and ours; the output of masked words is tied to the table of tokens."""

BERT_SETTINGS = {"position_embedding_type": "absolute", "is_decoder": False, "type_vocab_size": 2}


def _bert_weights(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], heads: Sequence[str]
) -> Pretrained | None:
    """The weights of a BERT, with the layers behind its body whose names begin so."""
    if not any(name.endswith("embeddings.token_type_embeddings.weight") for name in tensors):
        return None
    check_settings(config, BERT_SETTINGS, "a BERT")
    modern = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): x
        for name, x in tensors.items()
    }
    ours = joined(renamed(modern, BERT_NAMES, "a BERT of transformers"))
    ours = {name: x for name, x in ours.items() if name.startswith(("body.", *heads))}
    places, width = ours["body.positions.weight"].shape
    options = {
        "width": width,
        "depth": depth_of(ours, "body.blocks."),
        "heads": config.get("num_attention_heads", max(1, width // 64)),
        "hidden": len(ours["body.blocks.0.mlp.0.weight"]),
        "places": places,
        "activation": activation(config, "hidden_act", "gelu"),
        "eps": config.get("layer_norm_eps", 1e-12),
    }
    spec = {"vocab_size": len(ours["body.embedding.weight"])}
    return Pretrained(ours, options, spec, head=tuple(heads))


def text_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """Weights of a BERT under a head of texts; its pooler and classifier where they are there.

    Args:
        tensors: By the names of BertModel or BertForSequenceClassification.
        config: What ``config.json`` says; of {} the heads have 64 numbers each, as all of the paper.

    Returns:
        None where the names are not that library's.

    Raises:
        ValueError: A tensor is none of a BERT's, or a setting is one that ours has not.
    """
    return _bert_weights(tensors, config, ("pooler.", "head."))


def token_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """Weights of a BERT under a head of tokens: tags, or the ends of a span; see :func:`text_weights`."""
    return _bert_weights(tensors, config, ("head.",))


def masked_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """Weights of BertForPreTraining, or of what of it is there; see :func:`text_weights`."""
    return _bert_weights(tensors, config, ("pooler.", "transform.", "transform_norm.", "bias", "next."))


SIDE = r"^model\.(encoder|decoder)\.layers\.(\d+)\."
MARIAN_NAMES = (
    (r"^model\.shared\.|^lm_head\.|embed_positions\.", ""),
    (r"^model\.encoder\.embed_tokens\.", "source_embedding."),
    (r"^model\.decoder\.embed_tokens\.", "embedding."),
    (r"^final_logits_bias$", "bias"),
    *(
        (SIDE + rf"self_attn\.{theirs}\.", rf"\1.\2.attention.{ours}.")
        for theirs, ours in (
            ("q_proj", "query"),
            ("k_proj", "key"),
            ("v_proj", "value"),
            ("out_proj", "output"),
        )
    ),
    (SIDE + r"encoder_attn\.q_proj\.", r"\1.\2.cross.queries."),
    (SIDE + r"encoder_attn\.(k|v)_proj\.", r"\1.\2.cross.\3."),
    (SIDE + r"encoder_attn\.out_proj\.", r"\1.\2.cross.output."),
    (SIDE + r"self_attn_layer_norm\.", r"\1.\2.norm1."),
    (SIDE + r"encoder_attn_layer_norm\.", r"\1.\2.norm2."),
    (r"^model\.encoder\.layers\.(\d+)\.final_layer_norm\.", r"encoder.\1.norm2."),
    (r"^model\.decoder\.layers\.(\d+)\.final_layer_norm\.", r"decoder.\1.norm3."),
    (SIDE + r"fc1\.", r"\1.\2.mlp.0."),
    (SIDE + r"fc2\.", r"\1.\2.mlp.3."),
)
"""Patterns of Marian's names, and ours; its positions are a formula."""

MARIAN_SETTINGS = {"scale_embedding": True, "normalize_before": False, "normalize_embedding": False}


def marian_weights(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Pretrained | None:
    """The weights of a MarianMT translator, the transformer of transformers as the paper has it (post-LN).

    Its tokens 0 (end) and the last (padding, and the begin of a target) are its own.

    Args:
        tensors: By their names.
        config: What ``config.json`` says; of {} there are 8 heads, as in all that are published.

    Returns:
        None where the names are not that library's.

    Raises:
        ValueError: A tensor is none of a Marian's, or a setting is one that ours has not.
    """
    if not any(name.endswith("encoder_attn.q_proj.weight") for name in tensors):
        return None
    check_settings(config, MARIAN_SETTINGS, "a Marian")
    heads = {config.get(f"{side}_attention_heads", 8) for side in ("encoder", "decoder")}
    shared = (
        {}
        if "model.shared.weight" not in tensors
        else {
            f"model.{side}.embed_tokens.weight": tensors["model.shared.weight"]
            for side in ("encoder", "decoder")
        }
    )
    ours = joined(renamed({**shared, **tensors}, MARIAN_NAMES, "a Marian of transformers"))
    for name in [name for name in ours if ".cross.k." in name]:
        both = torch.cat((ours.pop(name), ours.pop(name.replace(".k.", ".v."))))
        ours[name.replace(".k.", ".keys_values.")] = both
    ours["bias"] = ours["bias"].flatten() if "bias" in ours else torch.zeros(len(ours["embedding.weight"]))
    depths = {depth_of(ours, "encoder."), depth_of(ours, "decoder.")}
    if len(depths) > 1 or len(heads) > 1:
        raise ValueError(f"encoder and decoder must be alike: got {depths} blocks, {heads} heads")
    options = {
        "width": ours["embedding.weight"].shape[1],
        "depth": depths.pop(),
        "heads": heads.pop(),
        "hidden": len(ours["encoder.0.mlp.0.weight"]),
        "norm": "after",
        "activation": activation(config, "activation_function", "swish"),
        "positions": "halves",
    }
    sizes = {"source_vocab_size": "source_embedding.weight", "vocab_size": "embedding.weight"}
    return Pretrained(ours, options, {name: len(ours[table]) for name, table in sizes.items()}, head=())
