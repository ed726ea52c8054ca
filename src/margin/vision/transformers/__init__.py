"""Vision transformers."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need

VIT = Need("a vision transformer", model="margin.vision.transformers.vit:ViT")
DOSOVITSKIY_2021 = "Dosovitskiy et al. 2021, Equations 1 to 4"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("vision/vit",
        ".vit:ViT", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:small_images",
        "Vision transformer: an encoder over the patches of an image, to class logits", DOSOVITSKIY_2021,
        defaults={"epochs": 30, "batch_size": 64, "lr": 1e-3, "schedule": "cosine"},
        weights=".weights:vit_weights", covers=("vit",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("vision/vit.permutation",
        ".claims:permutation", ".claims:demo",
        "Do the logits depend on the order of the patches, where these have no positions?",
        "Vaswani et al. 2017, Section 3.5; Dosovitskiy et al. 2021, Section 3.1",
        needs=(VIT,), cost=Cost(4, limit=64), by_name=KNOWN,
        covers=("vit", "attn.permutation_equivariance")),
    Claim("vision/vit.shift",
        ".claims:shift", ".claims:demo",
        "How far are the tokens of a shifted image from the shifted tokens, block by block?",
        "Dosovitskiy et al. 2021, Section 3.1 (inductive bias)",
        needs=(VIT,), cost=Cost(4, limit=64), question="moves", covers=("inductive_bias.vit_vs_cnn",)),
    Claim("vision/vit.attention",
        ".claims:attention", ".claims:demo",
        "Which patches does attention rollout reach, and how many of them?",
        "Abnar and Zuidema 2020, Section 3, Equation 1",
        needs=(VIT,), cost=Cost(4, limit=64), question="moves", figure=".figures:attention_maps",
        covers=("vit", "attn.mixing")),
)
# fmt: on
