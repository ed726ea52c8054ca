"""Convolutional networks."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need

CONVOLUTIONS = Need("networks that convolve images", "margin.vision.convnets.claims:convolves", of="model")

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("vision/lenet5",
        ".lenet5:LeNet5", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "LeNet-5: two convolutions, two poolings, three dense layers, on images of any size",
        "LeCun, Bottou, Bengio and Haffner 1998, Section II.B",
        defaults={"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"}, covers=("cnn.lenet5",)),
    Entry("vision/resnet",
        ".resnet:ResNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "ResNet-18 to 152, and 20 to 110 for small images; basic, bottleneck or pre-activation blocks",
        "He, Zhang, Ren and Sun 2016, Deep residual learning, Table 1 and Section 4.2",
        defaults={"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"},
        weights=".weights:resnet_weights", covers=("cnn.resnet",)),
)

CLAIMS: tuple[Claim, ...] = (
    Claim("vision/convnet.pyramid", ".claims:pyramid", ".claims:lenet_demo",
        "Which layers of a convolutional network enlarge its maps, or make them fewer?",
        "LeCun, Bottou, Bengio and Haffner 1998, Section II.A (bi-pyramid)", needs=(CONVOLUTIONS,),
        cost=Cost(1, limit=1), by_name=KNOWN, covers=("cnn.pyramid",)),
    Claim("vision/convnet.dense_share", ".claims:dense_share", ".claims:lenet_demo",
        "Which part of the parameters is that of dense layers?",
        "Simonyan and Zisserman 2015, Table 2; He, Zhang, Ren and Sun 2016, Section 3.3",
        needs=(CONVOLUTIONS,), cost=Cost(0), by_name=KNOWN, covers=("cnn.pyramid", "cnn.vgg")),
)
# fmt: on
