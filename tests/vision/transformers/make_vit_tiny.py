"""Writes vit_tiny.safetensors and its config: a small ViTForImageClassification, an input and its logits."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification

CONFIG = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 2,
    "num_labels": 5,
    "layer_norm_eps": 1e-3,
}


def main() -> None:
    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(**CONFIG)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    folder = Path(__file__).parent / "vit_tiny"
    model.save_pretrained(folder)
    kept = {name: CONFIG[name] for name in ("num_attention_heads", "image_size", "layer_norm_eps")}
    (folder / "config.json").write_text(json.dumps(kept) + "\n")
    x, large = torch.randn(3, 2, 8, 8), torch.randn(3, 2, 12, 16)
    with torch.no_grad():
        answers = {
            "logits": model(x).logits,
            "large_logits": model(large, interpolate_pos_encoding=True).logits,
        }
    save_file({"x": x, "large": large, **answers}, folder / "answers.safetensors")


if __name__ == "__main__":
    main()
