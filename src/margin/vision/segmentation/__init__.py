"""Semantic segmentation: a class for every pixel of an image."""

from margin.core.catalog import LABELS, Claim, Entry, Need, Part, Rule

DENSE = Need("a class for every pixel of an image", "margin.vision.segmentation.overlap:has_masks")
DICE_1945 = "Dice 1945 (the coefficient, Section 2); van Rijsbergen 1979, Chapter 7"

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("vision/unet",
        ".unet:UNet", "margin.core.tasks:PIXEL_CLASSES", "margin.data.sets.tiny.tables:masks",
        "U-Net: class logits of every pixel, from coarse maps joined with what the way down left",
        "Ronneberger, Fischer and Brox 2015, Section 2",
        defaults={"epochs": 100, "batch_size": 4, "lr": 2e-3, "schedule": "cosine", "patience": 30},
        covers=("cnn.unet",)),
)

RULES: tuple[Rule, ...] = (
    Rule("vision/dice_loss", ".overlap:dice_loss",
        "Descent on one less the Dice coefficient of each class, and on the cross-entropy",
        "Milletari, Navab and Ahmadi 2016, Section 3"),
)

PARTS: tuple[Part, ...] = (
    Part("vision/soft_dice", "loss", ".overlap:soft_dice",
        "The Dice coefficient of probabilities and labels, class by class, of each image",
        "Milletari, Navab and Ahmadi 2016, Section 3"),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("vision/segmentation.dice", ".overlap:dice", ".overlap:demo",
        "Dice by class: how well do the pixels predicted as each class cover its own?", DICE_1945,
        needs=(LABELS, DENSE), figure=".figures:overlays", question="fails"),
    Claim("vision/segmentation.iou", ".overlap:iou", ".overlap:demo",
        "Intersection over union by class: what share of the pixels that are or are called a class are both?",
        "Jaccard 1912 (the coefficient); Everingham et al. 2010, Section 4.2", needs=(LABELS, DENSE),
        question="fails"),
)
# fmt: on
