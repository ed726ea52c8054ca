"""Convolution and convolutional networks."""

from margin.core.catalog import Entry

MODELS = (
    Entry(
        name="vision/lenet5",
        summary="LeNet-5: two convolutions, two poolings, three dense layers, on images of any size",
        build="margin.vision.convnets.lenet5:LeNet5",
        task="margin.core.tasks:CLASSES",
        tiny="margin.data.sets.tiny.tables:images",
        defaults={"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"},
        reference="LeCun, Bottou, Bengio and Haffner 1998, Section II.B",
        covers=("cnn.lenet5",),
    ),
)
