"""Write the folders gpt_tiny, bert_tiny and marian_tiny: models of transformers with inputs and outputs.

Run where transformers is installed; the weights are random, every parameter drawn.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

HERE = Path(__file__).parent


def drawn(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def write(name: str, model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    folder = HERE / name
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({key: x.contiguous() for key, x in tensors.items()}, folder / "example.safetensors")


@torch.no_grad()
def main() -> None:
    g = torch.Generator().manual_seed(1)
    gpt = drawn(GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=16, n_embd=16, n_layer=2, n_head=2)))
    tokens = torch.randint(23, (3, 9), generator=g)
    write("gpt_tiny", gpt, {"tokens": tokens, "logits": gpt(tokens).logits})

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    bert = drawn(BertForPreTraining(BertConfig(vocab_size=23, max_position_embeddings=16, **sizes)))
    lengths, segments = torch.tensor([9, 4, 7]), (torch.arange(9) > 3).long().expand(3, -1)
    mask = (torch.arange(9) < lengths[:, None]).long()
    hidden = bert.bert(tokens, mask, segments).last_hidden_state
    found = bert(tokens, mask, segments)
    given = {"tokens": tokens, "lengths": lengths, "segments": segments}
    outputs = {"hidden": hidden, "words": found.prediction_logits, "next": found.seq_relationship_logits}
    write("bert_tiny", bert, given | outputs)

    config = MarianConfig(
        vocab_size=23,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=16,
        scale_embedding=True,
        activation_function="swish",
        pad_token_id=22,
        decoder_start_token_id=22,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    marian = MarianMTModel(config)
    fixed = [marian.model.encoder.embed_positions.weight, marian.model.decoder.embed_positions.weight]
    kept = [x.clone() for x in fixed]
    drawn(marian)
    for x, y in zip(fixed, kept, strict=True):
        x.copy_(y)
    marian.final_logits_bias.normal_()
    target = torch.randint(22, (3, 6), generator=g)
    found = marian(input_ids=tokens, attention_mask=mask, decoder_input_ids=target)
    write(
        "marian_tiny",
        marian,
        {"tokens": tokens, "lengths": lengths, "target": target, "logits": found.logits},
    )


if __name__ == "__main__":
    main()
