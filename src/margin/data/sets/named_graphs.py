"""Graphs and point clouds by name, whose files lie in ``$MARGIN_DATA``."""

from dataclasses import replace

from margin.data.data_home import placed
from margin.data.examples import Data
from margin.data.formats.graphs.attributes import raw_of_object
from margin.data.formats.graphs.files import load_npz
from margin.data.formats.graphs.node_data import Cut, Cutting, Normalize, node_data
from margin.data.formats.graphs.sets import read_graphs
from margin.data.formats.points.clouds import read_clouds
from margin.data.options import option_groups
from margin.data.splits import Split

CORA = (
    "Theory",
    "Reinforcement Learning",
    "Genetic Algorithms",
    "Neural Networks",
    "Probabilistic Methods",
    "Case Based",
    "Rule Learning",
)
"""The subjects of Cora's papers in the order of the labels, which the numbers of papers tell."""

CITESEER = (
    "Artificial Intelligence",
    "Machine Learning",
    "Information Retrieval",
    "Databases",
    "Agents",
    "Human-Computer Interaction",
)
"""The subjects of Citeseer's papers in the order of the labels, which the numbers of papers tell."""


@option_groups()
def cora(
    *,
    cutting: Cutting = Cutting(normalize="rows"),
) -> Data:
    """2,708 papers of seven subjects, 5,278 citations between them, 1,433 words each has or has not.

    The standard split: 140 papers to train (20 of each subject), 500 to choose by, 1,000 to test.

    Args:
        cutting: The parts, and what each of them sees.
        normalize: rows divides the words of a paper by their number, as the published results do.
        split: planetoid draws 20 and 30 of each subject anew, random cuts by the shares.
        setting: Whether training sees the whole graph, or the subgraph of the training papers alone.
        neighbors: Citations drawn to each paper at hop 1, 2, ... in training; () takes the whole graph.
        test: Share of the test part; only with split random.
        val: Share of the validation part; only with split random.
        split_seed: Seed of the random split; only with a split of one's own.

    Returns:
        Nodes of one undirected graph.

    Raises:
        FileNotFoundError: The file is missing.

    Reference: Yang, Cohen and Salakhutdinov 2016, Revisiting semi-supervised learning with graph embeddings,
    section 4.2.
    """
    return _planetoid("cora", CORA, cutting)


@option_groups()
def citeseer(
    *,
    cutting: Cutting = Cutting(normalize="rows"),
) -> Data:
    """3,327 papers of six subjects, 4,552 citations between them, 3,703 words each has or has not.

    The standard split: 120 papers to train (20 of each subject), 500 to choose by, 1,000 to test. Fifteen
    papers have neither words nor a subject and are in no part.

    Args:
        cutting: The parts, and what each of them sees.
        normalize: rows divides the words of a paper by their number; a paper without words keeps zeros.
        split: planetoid draws 20 and 30 of each subject anew, random cuts by the shares.
        setting: Whether training sees the whole graph, or the subgraph of the training papers alone.
        neighbors: Citations drawn to each paper at hop 1, 2, ... in training; () takes the whole graph.
        test: Share of the test part; only with split random.
        val: Share of the validation part; only with split random.
        split_seed: Seed of the random split; only with a split of one's own.

    Returns:
        Nodes of one undirected graph.

    Raises:
        FileNotFoundError: The file is missing.

    Reference: Yang, Cohen and Salakhutdinov 2016, Revisiting semi-supervised learning with graph embeddings,
    section 4.2.
    """
    return _planetoid("citeseer", CITESEER, cutting)


@option_groups("normalize", "split")
def amazon_photo(
    *,
    normalize: Normalize = "rows",
    split: Cut = "planetoid",
    cutting: Cutting = Cutting(),
) -> Data:
    """7,650 photographic goods of eight kinds, 119,081 pairs often bought together, 745 words of reviews.

    Args:
        cutting: The parts, and what each of them sees.
        normalize: rows divides the words of a good by their number.
        split: planetoid takes 20 goods of each kind to train and 30 to choose by, as the published results
            do; random cuts by the shares.
        setting: Whether training sees the whole graph, or the subgraph of the training goods alone.
        neighbors: Edges drawn to each good at hop 1, 2, ... in training; () takes the whole graph.
        test: Share of the test part; only with split random.
        val: Share of the validation part; only with split random.
        split_seed: Seed of the random split.

    Returns:
        Nodes of one undirected graph.

    Raises:
        FileNotFoundError: The file is missing.

    Reference: Shchur, Mumme, Bojchevski and Guennemann 2018, Pitfalls of graph neural network evaluation,
    section 3.
    """
    return _planetoid("amazon-photo", (), replace(cutting, normalize=normalize, split=split))


@option_groups()
def mutag(*, fold: int | None = None, split: Split = Split()) -> Data:
    """188 nitroaromatic compounds as graphs of atoms of seven kinds: do they mutate a bacterium's genes?

    Args:
        fold: The fold (1 .. 10) of the given ten whose graphs are the test part; eight graphs are
            in no fold.
        split: Test and validation part, seed.
        test: Share of the test part; without effect with a fold.

    Raises:
        FileNotFoundError: The files are missing.

    Reference: Debnath et al. 1991, Structure-activity relationship of mutagenic aromatic and heteroaromatic
    nitro compounds, table 1.
    """
    return _graphs("mutag", fold, split)


@option_groups()
def proteins(*, fold: int | None = None, split: Split = Split()) -> Data:
    """1,113 proteins as graphs of their secondary structure, elements of three kinds: enzymes or not.

    Args:
        fold: The fold (1 .. 10) of the given ten whose graphs are the test part; three graphs are
            in no fold.
        split: Test and validation part, seed.
        test: Share of the test part; without effect with a fold.

    Raises:
        FileNotFoundError: The files are missing.

    Reference: Borgwardt et al. 2005, Protein function prediction via graph kernels, section 3.
    """
    return _graphs("proteins", fold, split)


@option_groups()
def ptc(*, fold: int | None = None, split: Split = Split()) -> Data:
    """344 compounds as graphs of atoms of 19 kinds: do they cause cancer in male rats?

    Args:
        fold: The fold (1 .. 10) of the given ten whose graphs are the test part; four graphs are
            in no fold.
        split: Test and validation part, seed.
        test: Share of the test part; without effect with a fold.

    Raises:
        FileNotFoundError: The files are missing.

    Reference: Toivonen, Srinivasan, King, Kramer and Helma 2003, Statistical evaluation of the Predictive
    Toxicology Challenge 2000-2001, section 2.
    """
    return _graphs("ptc", fold, split)


@option_groups()
def enzymes(*, fold: int | None = None, split: Split = Split()) -> Data:
    """600 enzymes as graphs of their secondary structure, elements of three kinds, six classes of 100.

    Args:
        fold: The fold (1 .. 10) of the given ten whose graphs are the test part.
        split: Test and validation part, seed.
        test: Share of the test part; without effect with a fold.

    Raises:
        FileNotFoundError: The files are missing.

    Reference: Borgwardt et al. 2005, Protein function prediction via graph kernels, section 3.
    """
    return _graphs("enzymes", fold, split)


@option_groups("test")
def modelnet2(*, split: Split = Split()) -> Data:
    """889 chairs and 465 monitors as clouds of 256 points of their surfaces, in the unit ball.

    A fixed fifth, drawn by the set's maker, is its test part; it is not ModelNet's own, whose shapes are the
    training part of its ten-class set.

    Args:
        split: Test and validation part, seed.
        val: Share of the validation part among the others.

    Raises:
        FileNotFoundError: The file is missing.

    Reference: Wu et al. 2015, 3D ShapeNets: a deep representation for volumetric shapes, section 4.
    """
    (path,) = placed("modelnet2")
    return replace(read_clouds(path, scale="sphere", split=split), name="modelnet2")


@option_groups()
def shapenet10(*, points: int = 1024, split: Split = Split()) -> Data:
    """93 shapes of ten classes as clouds of points of their surfaces, in the unit ball.

    Args:
        points: Points drawn of the 2,048 of each shape.
        split: Test and validation part, seed.
        split_seed: Seed of the random split, and of the points.

    Raises:
        FileNotFoundError: The file is missing.

    Reference: Chang et al. 2015, ShapeNet: an information-rich 3D model repository, section 3.
    """
    (path,) = placed("shapenet10")
    data = read_clouds(path, scale="sphere", points=points, split=split)
    return replace(data, name="shapenet10")


def _planetoid(name: str, classes: tuple[str, ...], how: Cutting) -> Data:
    (path,) = placed(name)
    found = load_npz(path)
    found.classes = classes
    return node_data(raw_of_object(found, name, directed=None), how)


def _graphs(name: str, fold: int | None, split: Split) -> Data:
    (path,) = placed(name)
    return replace(read_graphs(path, fold=fold, split=split), name=name)
