"""Data: sources by name, readers of files, splits, preprocessing, synthetic sets with known answers."""

from margin.core.catalog import Part

# fmt: off
SHAPES: tuple[Part, ...] = (
    Part("data/solids", "source", "margin.data.sets.synthetic_geometry:solids",
        "Point clouds of a box, a cylinder and a sphere; the class of a point is its solid",
        "constructed: points uniform by area on surfaces, after Qi, Su, Mo & Guibas 2017, section 5.1"),
    Part("data/thin-lines", "source", "margin.data.sets.synthetic_geometry:thin_lines",
        "Gray images of thin lines in noise; the class of a pixel says whether it is of a line",
        "constructed: what a segmentation loses whose way up reads nothing of the way down"),
    Part("data/digit-sums", "source", "margin.data.sets.synthetic_geometry:digit_sums",
        "Sets of images of digits; the value is the sum of the digits",
        "constructed after Zaheer et al. 2017, Deep sets, section 4.1.2"),
)
# fmt: on

PARTS = (
    Part(
        name="data/digits",
        summary="1,797 scanned handwritten digits, 8 x 8 pixels of levels 0 .. 16, ten classes",
        kind="source",
        target="margin.data.sets.bundled:digits",
        reference="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, UCI, test part; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/iris",
        summary="150 irises of three species by four lengths in centimeters",
        kind="source",
        target="margin.data.sets.bundled:iris",
        reference="Fisher 1936, The use of multiple measurements in taxonomic problems, table I; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/wine",
        summary="178 wines of three cultivars by thirteen chemical measurements",
        kind="source",
        target="margin.data.sets.bundled:wine",
        reference="Aeberhard, Coomans & de Vel 1992, Wine (UCI); shipped with scikit-learn",
    ),
    Part(
        name="data/breast-cancer",
        summary="569 breast masses, malignant or benign, by thirty measurements of cell nuclei",
        kind="source",
        target="margin.data.sets.bundled:breast_cancer",
        reference="Street, Wolberg & Mangasarian 1993, Nuclear feature extraction for breast tumor "
        "diagnosis; shipped with scikit-learn",
    ),
    Part(
        name="data/diabetes",
        summary="442 patients: a disease's progression after one year by ten measurements in their own units",
        kind="source",
        target="margin.data.sets.bundled:diabetes",
        reference="Efron, Hastie, Johnstone & Tibshirani 2004, Least angle regression, table 1; "
        "shipped with scikit-learn",
    ),
    Part(
        name="data/two-moons",
        summary="two interleaved half circles of radius 1, 1/2 apart, with Gaussian noise",
        kind="source",
        target="margin.data.sets.synthetic:two_moons",
        reference="constructed: (cos t, sin t) and (1 - cos t, 1/2 - sin t), t in [0, pi], as in "
        "Pedregosa et al. 2011, scikit-learn, make_moons",
    ),
    Part(
        name="data/spirals",
        summary="arms of an Archimedean spiral, one class each, with Gaussian noise",
        kind="source",
        target="margin.data.sets.synthetic:spirals",
        reference="constructed after Lang & Witbrock 1988, Learning to tell two spirals apart",
    ),
    Part(
        name="data/xor",
        summary="uniform points of a square, the class where the coordinates' signs differ",
        kind="source",
        target="margin.data.sets.synthetic:xor",
        reference="constructed after Minsky & Papert 1969, Perceptrons, chapter 3 (parity)",
    ),
    Part(
        name="data/blobs",
        summary="Gaussian balls around the corners of a regular polygon, whose Bayes rule is known",
        kind="source",
        target="margin.data.sets.synthetic:blobs",
        reference="constructed: N(c_k, noise^2 I) as in Hastie, Tibshirani & Friedman 2009, section 4.3",
    ),
    Part(
        name="data/ring",
        summary="eight narrow Gaussians on a circle of radius 2, on which lost modes are counted",
        kind="source",
        target="margin.data.sets.mixture_plane:ring",
        reference="constructed as Metz, Poole, Pfau & Sohl-Dickstein 2017, Unrolled generative adversarial "
        "networks, section 3.1",
    ),
    Part(
        name="data/grid",
        summary="25 narrow Gaussians on a 5 x 5 grid, on which lost modes are counted",
        kind="source",
        target="margin.data.sets.mixture_plane:grid",
        reference="constructed as Srivastava, Valkov, Russell, Gutmann & Sutton 2017, VEEGAN, section 5.1",
    ),
    Part(
        name="data/separable",
        summary="two classes that a known hyperplane separates with exactly the stated margin",
        kind="source",
        target="margin.data.sets.synthetic:separable",
        reference="constructed for Novikoff 1962, On convergence proofs for perceptrons",
    ),
    Part(
        name="data/noisy-linear",
        summary="values of a known linear function of Gaussian inputs, of full or lower rank, plus noise",
        kind="source",
        target="margin.data.sets.synthetic:noisy_linear",
        reference="constructed: Hastie, Tibshirani & Friedman 2009, equation 3.9",
    ),
    Part(
        name="data/mnist",
        summary="70,000 handwritten digits, 28 x 28 pixels, ten classes; read from $MARGIN_DATA/mnist",
        kind="source",
        target="margin.data.formats.arrays.idx:mnist",
        reference="LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document "
        "recognition, section III-A",
    ),
    Part(
        name="data/fashion-mnist",
        summary="70,000 garments, 28 x 28 pixels, ten classes; read from $MARGIN_DATA/fashion-mnist",
        kind="source",
        target="margin.data.formats.arrays.idx:fashion_mnist",
        reference="Xiao, Rasul & Vollgraf 2017, Fashion-MNIST, arXiv:1708.07747, section 2",
    ),
    Part(
        name="data/augmentation",
        summary="Examples changed at random each time they are taken: moved, mirrored, turned, noisy",
        kind="algorithm",
        target="margin.data.transforms.augmentation:augmented",
        reference="Chapelle, Weston, Bottou & Vapnik 2001, Vicinal risk minimization, section 2",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/augmentation.words",
        summary="The transforms that words ask for, as shift:2, flip, rotate:15, elastic:2, cutout:8",
        kind="table",
        target="margin.data.transforms.augmentation:transforms_of",
        reference="Simard, Steinkraus & Platt 2003, section 2; DeVries & Taylor 2017, section 3.2; "
        "Park et al. 2019, section 2; Qi, Yi, Su & Guibas 2017, section 3.3",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/augmentation.sheet",
        summary="A picture of what each transform does to some of one's own samples",
        kind="function",
        target="margin.data.transforms.augmentation_sheet:augmentation_sheet",
        reference="constructed: as in Simard, Steinkraus & Platt 2003, Figure 2",
        covers=("data.augmentation",),
    ),
    Part(
        name="data/curriculum",
        summary="Batches of the easiest share of the examples, which grows to all of them",
        kind="algorithm",
        target="margin.data.sampling.curriculum:paced",
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
        target="margin.data.sampling.importance:Sampled",
        reference="Zhao & Zhang 2015, section 2",
        covers=("train.curriculum",),
    ),
    Part(
        name="data/fsdd",
        summary="600 clips of ten spoken digits by six speakers at 8 kHz; read from $MARGIN_DATA/fsdd",
        kind="source",
        target="margin.data.sets.spoken_digits:fsdd",
        reference="Jackson et al. 2018, Free Spoken Digit Dataset, section Usage",
    ),
    Part(
        name="data/mu_law",
        summary="Amplitudes as 256 codes on a logarithmic scale, and back, with the largest error of the way",
        kind="function",
        target="margin.data.transforms.mu_law:mu_law_encode",
        reference="Smith 1957, Section III; van den Oord et al. 2016, Section 2.2",
        covers=("wavenet",),
    ),
    Part(
        name="data/log_mel",
        summary="The logarithm of sound's power in bands of hearing, over time",
        kind="function",
        target="margin.data.transforms.spectra:log_mel",
        reference="Davis and Mermelstein 1980, Section II",
    ),
    Part(
        name="data/wave",
        summary="The samples in a WAV file of 8, 16, 24 or 32 bits as amplitudes",
        kind="function",
        target="margin.data.formats.audio.wave:read_wave",
        reference="IBM and Microsoft 1991, Multimedia Programming Interface, Section 3",
    ),
    Part(
        name="data/adding",
        summary="The adding problem: the sum of the two marked numbers; the constant 1 has error 1/6",
        kind="source",
        target="margin.data.sets.synthetic_sequences:adding",
        reference="Hochreiter & Schmidhuber 1997, section 5.4; in this form Arjovsky, Shah & Bengio 2016, "
        "section 4.2",
    ),
    Part(
        name="data/copy-memory",
        summary="Ten symbols to be repeated after a lag; without memory the loss is 10 ln 8 / (lag + 20)",
        kind="source",
        target="margin.data.sets.copy_memory:copy_memory",
        reference="Arjovsky, Shah & Bengio 2016, Unitary evolution recurrent neural networks, section 4.1",
    ),
    Part(
        name="data/anbn",
        summary="Strings a^n b^n, to be told by counting; the test part has larger n",
        kind="source",
        target="margin.data.sets.counting:anbn",
        reference="Joulin & Mikolov 2015, Inferring algorithmic patterns with stack-augmented recurrent "
        "nets, section 4",
    ),
    Part(
        name="data/parity",
        summary="Bits of several lengths, the class whether their sum is even or odd",
        kind="source",
        target="margin.data.sets.synthetic_sequences:parity",
        reference="constructed after Minsky & Papert 1969, Perceptrons, chapter 3 (parity)",
    ),
    Part(
        name="data/reversal",
        summary="Pairs of a word and the word read backward, of several lengths",
        kind="source",
        target="margin.data.sets.reversal:reversal",
        reference="constructed after Sutskever, Vinyals & Le 2014, section 3.3",
    ),
    Part(
        name="data/mnist1d",
        summary="5,000 sequences of 40 points in ten classes, made by their published recipe",
        kind="source",
        target="margin.data.sets.mnist1d:mnist1d",
        reference="Greydanus & Kobak 2024, Scaling down deep learning with MNIST-1D, section 2",
    ),
    Part(
        name="data/tinyshakespeare",
        summary="A million characters of Shakespeare's plays; read from $MARGIN_DATA/tinyshakespeare",
        kind="source",
        target="margin.data.sets.corpora:tiny_shakespeare",
        reference="Karpathy 2015, char-rnn, section data/tinyshakespeare",
    ),
    Part(
        name="data/multi30k",
        summary="31,014 captions in German, English, French; read from $MARGIN_DATA/multi30k",
        kind="source",
        target="margin.data.sets.corpora:multi30k",
        reference="Elliott, Frank, Sima'an & Specia 2016, Multi30K, section 2",
    ),
    Part(
        name="data/similar_length",
        summary="Batches in which examples of similar length come together, and the padding that they cost",
        kind="algorithm",
        target="margin.data.sampling.length_batches:BySimilarLength",
        reference="Khomenko et al. 2016, Accelerating recurrent neural network training using sequence "
        "bucketing, section III",
    ),
    Part(
        name="data/sequences",
        summary="Sequences of one length or several: arrays, lists, .npz, files of the UCR and UEA archives",
        kind="function",
        target="margin.data.formats.sequences.sources:read_sequences",
        reference="Dau et al. 2019, The UCR time series archive, section II",
    ),
    Part(
        name="data/text",
        summary="A text as blocks of characters or words with the token that follows each",
        kind="function",
        target="margin.data.formats.text.sources:read_text",
        reference="Karpathy, Johnson & Fei-Fei 2015, Visualizing and understanding recurrent networks, "
        "section 4",
    ),
    Part(
        name="data/pairs",
        summary="Pairs of sentences from two columns or two files, with a vocabulary of each side",
        kind="function",
        target="margin.data.formats.text.pairs:read_pairs",
        reference="Bahdanau, Cho & Bengio 2015, section 4.1",
    ),
    Part(
        name="data/cora",
        summary="2,708 papers of seven subjects, their citations and words; read from $MARGIN_DATA/planetoid",
        kind="source",
        target="margin.data.sets.named_graphs:cora",
        reference="Yang, Cohen & Salakhutdinov 2016, Revisiting semi-supervised learning with graph "
        "embeddings, section 4.2",
    ),
    Part(
        name="data/citeseer",
        summary="3,327 papers of six subjects, their citations and words; read from $MARGIN_DATA/planetoid",
        kind="source",
        target="margin.data.sets.named_graphs:citeseer",
        reference="Yang, Cohen & Salakhutdinov 2016, Revisiting semi-supervised learning with graph "
        "embeddings, section 4.2",
    ),
    Part(
        name="data/amazon-photo",
        summary="7,650 goods of eight kinds, often bought together; read from $MARGIN_DATA/amazon-photo",
        kind="source",
        target="margin.data.sets.named_graphs:amazon_photo",
        reference="Shchur, Mumme, Bojchevski & Guennemann 2018, Pitfalls of graph neural network evaluation, "
        "section 3",
    ),
    Part(
        name="data/mutag",
        summary="188 compounds as graphs of atoms, mutagenic or not; read from $MARGIN_DATA/graphclass",
        kind="source",
        target="margin.data.sets.named_graphs:mutag",
        reference="Debnath, Lopez de Compadre, Debnath, Shusterman & Hansch 1991, Structure-activity "
        "relationship of mutagenic aromatic and heteroaromatic nitro compounds, table 1",
    ),
    Part(
        name="data/proteins",
        summary="1,113 proteins as graphs, enzymes or not; read from $MARGIN_DATA/graphclass",
        kind="source",
        target="margin.data.sets.named_graphs:proteins",
        reference="Borgwardt et al. 2005, Protein function prediction via graph kernels, section 3",
    ),
    Part(
        name="data/ptc",
        summary="344 compounds as graphs of atoms, carcinogenic or not; read from $MARGIN_DATA/graphclass",
        kind="source",
        target="margin.data.sets.named_graphs:ptc",
        reference="Toivonen, Srinivasan, King, Kramer & Helma 2003, Statistical evaluation of the Predictive "
        "Toxicology Challenge 2000-2001, section 2",
    ),
    Part(
        name="data/enzymes",
        summary="600 enzymes as graphs, six classes of 100; read from $MARGIN_DATA/graphclass",
        kind="source",
        target="margin.data.sets.named_graphs:enzymes",
        reference="Borgwardt et al. 2005, Protein function prediction via graph kernels, section 3",
    ),
    Part(
        name="data/modelnet2",
        summary="1,354 chairs and monitors as clouds of 256 points; read from $MARGIN_DATA/modelnet2",
        kind="source",
        target="margin.data.sets.named_graphs:modelnet2",
        reference="Wu et al. 2015, 3D ShapeNets: a deep representation for volumetric shapes, section 4",
    ),
    Part(
        name="data/shapenet10",
        summary="93 shapes of ten classes as clouds of points; read from $MARGIN_DATA/shapenet10",
        kind="source",
        target="margin.data.sets.named_graphs:shapenet10",
        reference="Chang et al. 2015, ShapeNet: an information-rich 3D model repository, section 3",
    ),
    *SHAPES,
    Part(
        name="data/graph",
        summary="Graphs as sparse tensors: features, edges, features of edges, sizes; one graph or many",
        kind="container",
        target="margin.data.formats.graphs.graphs:Graph",
        reference="Fey & Lenssen 2019, Fast graph representation learning with PyTorch Geometric, section 2",
    ),
    Part(
        name="data/neighbor_sampling",
        summary="Batches of some nodes with a random part of their neighborhoods, hop by hop",
        kind="algorithm",
        target="margin.data.formats.graphs.neighbor_sampling:Sampled",
        reference="Hamilton, Ying & Leskovec 2017, Inductive representation learning on large graphs, "
        "section 3.1",
    ),
)
