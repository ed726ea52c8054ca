"""Convolutional networks."""

from functools import partial

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

CONVOLUTIONS = Need("networks that convolve images", "margin.vision.convnets.claims:convolves", of="model")

network = partial(
    Entry,
    task="margin.core.tasks:CLASSES",
    tiny="margin.data.sets.tiny.tables:images",
    defaults={"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"},
    least_steps=300,
)
"""A classifier of images, with the family's defaults of a training."""

# fmt: off

MODELS: tuple[Entry, ...] = (
    network("vision/lenet5", ".lenet5:LeNet5", covers=("cnn.lenet5",),
        summary="LeNet-5: two convolutions, two poolings, three dense layers, on images of any size",
        reference="LeCun, Bottou, Bengio and Haffner 1998, Section II.B"),
    network("vision/alexnet", ".alexnet:AlexNet", covers=("cnn.alexnet",), weights=".weights:alexnet_weights",
        summary="AlexNet with one or two groups; a quarter of it for small images",
        reference="Krizhevsky, Sutskever and Hinton 2012, Section 3"),
    network("vision/vgg", ".vgg:VGG", covers=("cnn.vgg",), weights=".weights:vgg_weights",
        summary="VGG-11 to 19, or a small one for small images: 3x3 convolutions in stages, pooling between",
        reference="Simonyan and Zisserman 2015, Table 1"),
    network("vision/googlenet", ".googlenet:GoogLeNet", covers=("cnn.inception",),
        weights=".weights:googlenet_weights",
        summary="GoogLeNet: nine Inception modules with normalization; a quarter of it for small images",
        reference="Szegedy et al. 2015, Table 1"),
    network("vision/densenet", ".densenet:DenseNet", covers=("densenet.block",),
        weights=".weights:densenet_weights",
        summary="DenseNet-121 to 264, and 40 to 250 for small images: each layer reads all maps before it",
        reference="Huang, Liu, van der Maaten and Weinberger 2017, Table 1"),
    network("vision/resnet", ".resnet:ResNet", covers=("cnn.resnet",), weights=".weights:resnet_weights",
        summary="ResNet-18 to 152, or 20 to 110 for small images; basic, bottleneck or pre-activation blocks",
        reference="He, Zhang, Ren and Sun 2016, Deep residual learning, Table 1 and Section 4.2"),
)

PARTS: tuple[Part, ...] = (
    Part("vision/residual_block", "layer", ".resnet:residual_block",
        "A basic, bottleneck or pre-activation block: shortcut(x) + branch(x)",
        "He, Zhang, Ren and Sun 2016, Figure 5; Identity mappings, Figure 4 (e)", covers=("cnn.resnet",)),
    Part("vision/inception", "layer", ".googlenet:Inception",
        "Branches of 1x1, 3x3, 5x5 and pooling side by side, behind 1x1 convolutions that reduce the maps",
        "Szegedy et al. 2015, Figure 2 (b)", covers=("cnn.inception",)),
    Part("vision/dense_block", "layer", ".densenet:DenseBlock",
        "Each layer reads the maps of all layers before it and adds its own",
        "Huang, Liu, van der Maaten and Weinberger 2017, Equation 2", covers=("densenet.block",)),
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
