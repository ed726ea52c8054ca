"""Data: sources by name, readers of files, splits, preprocessing, synthetic sets with known answers."""

from margin.catalog import Part

PARTS = (
    Part(
        name="data/digits",
        summary="1,797 scanned handwritten digits, 8 x 8 pixels of levels 0 .. 16, ten classes",
        kind="source",
        target="margin.data.bundled:digits",
        reference="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, UCI, test part; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/iris",
        summary="150 irises of three species by four lengths in centimeters",
        kind="source",
        target="margin.data.bundled:iris",
        reference="Fisher 1936, The use of multiple measurements in taxonomic problems, table I; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/wine",
        summary="178 wines of three cultivars by thirteen chemical measurements",
        kind="source",
        target="margin.data.bundled:wine",
        reference="Aeberhard, Coomans & de Vel 1992, Wine (UCI); shipped with scikit-learn",
    ),
    Part(
        name="data/breast-cancer",
        summary="569 breast masses, malignant or benign, by thirty measurements of cell nuclei",
        kind="source",
        target="margin.data.bundled:breast_cancer",
        reference="Street, Wolberg & Mangasarian 1993, Nuclear feature extraction for breast tumor "
        "diagnosis; shipped with scikit-learn",
    ),
    Part(
        name="data/diabetes",
        summary="442 patients: a disease's progression after one year by ten measurements in their own units",
        kind="source",
        target="margin.data.bundled:diabetes",
        reference="Efron, Hastie, Johnstone & Tibshirani 2004, Least angle regression, table 1; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/two-moons",
        summary="two interleaved half circles of radius 1, 1/2 apart, with Gaussian noise",
        kind="source",
        target="margin.data.synthetic:two_moons",
        reference="constructed: (cos t, sin t) and (1 - cos t, 1/2 - sin t), t in [0, pi], as in "
        "Pedregosa et al. 2011, scikit-learn, make_moons",
    ),
    Part(
        name="data/spirals",
        summary="arms of an Archimedean spiral, one class each, with Gaussian noise",
        kind="source",
        target="margin.data.synthetic:spirals",
        reference="constructed after Lang & Witbrock 1988, Learning to tell two spirals apart",
    ),
    Part(
        name="data/xor",
        summary="uniform points of a square, the class where the coordinates' signs differ",
        kind="source",
        target="margin.data.synthetic:xor",
        reference="constructed after Minsky & Papert 1969, Perceptrons, chapter 3 (parity)",
    ),
    Part(
        name="data/blobs",
        summary="Gaussian balls around the corners of a regular polygon, whose Bayes rule is known",
        kind="source",
        target="margin.data.synthetic:blobs",
        reference="constructed: N(c_k, noise^2 I) as in Hastie, Tibshirani & Friedman 2009, section 4.3",
    ),
    Part(
        name="data/separable",
        summary="two classes that a known hyperplane separates with exactly the stated margin",
        kind="source",
        target="margin.data.synthetic:separable",
        reference="constructed for Novikoff 1962, On convergence proofs for perceptrons",
    ),
    Part(
        name="data/noisy-linear",
        summary="values of a known linear function of Gaussian inputs, of full or lower rank, plus noise",
        kind="source",
        target="margin.data.synthetic:noisy_linear",
        reference="constructed: Hastie, Tibshirani & Friedman 2009, equation 3.9",
    ),
    Part(
        name="data/mnist",
        summary="70,000 handwritten digits, 28 x 28 pixels, ten classes; read from $MARGIN_DATA/mnist",
        kind="source",
        target="margin.data.idx:mnist",
        reference="LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document "
        "recognition, section III-A",
    ),
    Part(
        name="data/fashion-mnist",
        summary="70,000 garments, 28 x 28 pixels, ten classes; read from $MARGIN_DATA/fashion-mnist",
        kind="source",
        target="margin.data.idx:fashion_mnist",
        reference="Xiao, Rasul & Vollgraf 2017, Fashion-MNIST, arXiv:1708.07747, section 2",
    ),
    Part(
        name="data/augmentation",
        summary="Examples changed at random each time they are taken: moved, mirrored, turned, noisy",
        kind="algorithm",
        target="margin.data.augmentation:augmented",
        reference="Chapelle, Weston, Bottou & Vapnik 2001, Vicinal risk minimization, section 2",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/augmentation.words",
        summary="The transforms that words ask for, as shift:2, flip, rotate:15, noise:.1, cutout:8",
        kind="table",
        target="margin.data.augmentation:transforms_of",
        reference="Simard, Steinkraus & Platt 2003, section 2; DeVries & Taylor 2017, section 3.2; "
        "Park et al. 2019, section 2; Qi, Yi, Su & Guibas 2017, section 3.3",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/augmentation.sheet",
        summary="A picture of what each transform does to some of one's own samples",
        kind="function",
        target="margin.data.augmentation_sheet:augmentation_sheet",
        reference="constructed: as in Simard, Steinkraus & Platt 2003, Figure 2",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/curriculum",
        summary="Batches of the easiest share of the examples, which grows to all of them",
        kind="algorithm",
        target="margin.data.curriculum:paced",
        reference="Bengio, Louradour, Collobert & Weston 2009, Curriculum learning, section 3; "
        "Hacohen & Weinshall 2019, section 2",
        covers=(
            "train.curriculum",
            "opt.curriculum",
        ),
    ),
    Part(
        name="data/importance_sampling",
        summary="Batches in which some examples are drawn more often, with the ratios that make up for it",
        kind="algorithm",
        target="margin.data.importance:Sampled",
        reference="Zhao & Zhang 2015, section 2",
        covers=("train.curriculum",),
    ),
)
