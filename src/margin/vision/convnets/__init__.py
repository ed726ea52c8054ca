"""Convolutional networks."""

from margin.core.catalog import Entry

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("vision/lenet5",
        ".lenet5:LeNet5", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "LeNet-5: two convolutions, two poolings, three dense layers, on images of any size",
        "LeCun, Bottou, Bengio and Haffner 1998, Section II.B",
        defaults={"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"}, least_steps=300,
        covers=("cnn.lenet5",)),
)
# fmt: on
