"""Puts tests/ on the import path, so that a benchmark can import `support`.

Import this module before `support`. It lets `python benchmarks/NAME.py` run from a clean checkout.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
