"""Graphs, alone and in sets."""

from typing import Literal

from margin.core.catalog import Format

NAMED = {"name": str, "kind": Literal["number", "category", "boolean", "date"]}
WRITTEN = {"unit?": str, "grouped?": bool, "folded?": bool}
TABLES = {
    "columns": [NAMED, "column"],
    "edge_columns": [NAMED, "column"],
    "id": str,
    "ends": list[str],
    "directed": Literal["undirected", "directed"],
    "target": {**NAMED, **WRITTEN},
}
LABELS = {"tags": list[int] | None, "edge_tags": list[int] | None, "largest_degree": int | None}

FORMATS = (
    Format(
        name="graphs",
        reader="margin.data.formats.graphs.sets:read_graphs",
        encoder="margin.data.formats.graphs.sets:encode_graphs",
        prefix=True,
        holds=("*_graph_indicator.txt",),
        numbers=True,
        record={
            "kind": Literal["graphs"],
            "edge_features": int,
            "tables?": TABLES,
            "graphs?": LABELS,
        },
    ),
    Format(
        name="graph",
        reader="margin.data.formats.graphs.files:read_graph",
        encoder="margin.data.formats.graphs.files:encode_graph",
        prefix=True,
        endings=(".graphml", ".gml", ".gexf", ".net", ".edgelist", ".edges"),
        holds=("edges.*",),
        gives={"node_features": "a graph"},
        numbers=True,
        record={
            "kind": Literal["graph"],
            "normalize": Literal["none", "rows"],
            "edge_features": int,
            "tables?": TABLES,
        },
    ),
    Format(
        name="graph_object",
        reader="margin.data.formats.graphs.objects:from_graph",
        known="margin.data.source:is_graph",
    ),
    Format(
        name="graph_objects",
        reader="margin.data.formats.graphs.objects:from_graphs",
        known="margin.data.source:are_graphs",
    ),
)
