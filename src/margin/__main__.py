"""``python -m margin``."""

import sys

from margin.cli import main

sys.exit(main())
