"""After the tests of parity: how far from the published numbers ours are."""

import sys


def pytest_terminal_summary(terminalreporter):
    """Tells the largest relative difference of each thing compared."""
    peers = sys.modules.get("peers")
    for what, difference in sorted(getattr(peers, "CLOSEST", {}).items()):
        version = peers.transformers.__version__
        terminalreporter.write_line(f"transformers {version}: {what}: {difference:.1e}")
