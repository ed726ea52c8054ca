"""The site: written pages, those that are derived from the tables, the book of theorems, the reference."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import derived  # noqa: E402

project = "margin"
author = "The margin developers"
copyright = "the margin developers"  # noqa: A001
extensions = ["myst_parser"]
exclude_patterns = ["results"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "margin"
html_static_path = ["_static"]
html_css_files = ["extra.css"]
html_show_sourcelink = False
html_show_sphinx = False

derived.write(HERE)
