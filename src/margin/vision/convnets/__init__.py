"""Convolutional networks."""

from margin.core.catalog import KNOWN, Claim, Cost, Entry, Need, Part

CONVOLUTIONS = Need("networks that convolve images", "margin.vision.convnets.claims:convolves", of="model")

TRAINING = {"epochs": 20, "batch_size": 64, "lr": 2e-3, "schedule": "cosine"}

# fmt: off

MODELS: tuple[Entry, ...] = (
    Entry("vision/lenet5",
        ".lenet5:LeNet5", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "LeNet-5: two convolutions, two poolings, three dense layers, on images of any size",
        "LeCun, Bottou, Bengio and Haffner 1998, Section II.B",
        defaults=TRAINING, least_steps=300, covers=("cnn.lenet5",)),
    Entry("vision/alexnet",
        ".alexnet:AlexNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "AlexNet with one or two groups; a quarter of it for small images",
        "Krizhevsky, Sutskever and Hinton 2012, Section 3", defaults=TRAINING, least_steps=300,
        covers=("cnn.alexnet",)),
    Entry("vision/vgg",
        ".vgg:VGG", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "VGG-11 to 19, or a small one for small images: 3x3 convolutions in stages with pooling between",
        "Simonyan and Zisserman 2015, Table 1", defaults=TRAINING, least_steps=300, covers=("cnn.vgg",)),
    Entry("vision/googlenet",
        ".googlenet:GoogLeNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "GoogLeNet: nine Inception modules with normalization; a quarter of it for small images",
        "Szegedy et al. 2015, Table 1", defaults=TRAINING, least_steps=300, covers=("cnn.inception",)),
    Entry("vision/densenet",
        ".densenet:DenseNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "DenseNet-121 to 264, and 40 to 250 for small images: each layer reads all maps before it",
        "Huang, Liu, van der Maaten and Weinberger 2017, Table 1", defaults=TRAINING, least_steps=300,
        covers=("densenet.block",)),
    Entry("vision/resnet",
        ".resnet:ResNet", "margin.core.tasks:CLASSES", "margin.data.sets.tiny.tables:images",
        "ResNet-18 to 152, and 20 to 110 for small images; basic, bottleneck or pre-activation blocks",
        "He, Zhang, Ren and Sun 2016, Deep residual learning, Table 1 and Section 4.2",
        defaults=TRAINING, least_steps=300,
        weights=".weights:resnet_weights", covers=("cnn.resnet",)),
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
