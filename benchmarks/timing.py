"""Times several variants of the same work in turns, and plots their speeds."""

import statistics
import sys
import time
from collections.abc import Callable


def time_in_turns(
    variants: dict[str, Callable[[], None]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Runs the variants in turns, so that other load on the machine affects all of them.

    Args:
      variants: functions to time, by name.
      rounds: measured rounds; one more round runs first, for compilation.

    Returns:
      Median wall-clock seconds and median CPU seconds of each variant.
    """
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, function in variants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            function()
            if number:
                spent[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    wall_seconds, cpu_seconds = (
        {name: statistics.median(pair[clock] for pair in pairs) for name, pairs in spent.items()}
        for clock in (0, 1)
    )
    return wall_seconds, cpu_seconds


def plot_speeds(speeds: dict[str, dict[str, int]], path: str) -> None:
    """Plots bars of non-padding tokens per second; needs matplotlib.

    Args:
      speeds: model size -> variant -> tokens per second.
      path: image file to write.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        sys.stderr.write(f"no plot: {error} (pip install -e '.[bench]')\n")
        return
    _, axes = plt.subplots(1, len(speeds), figsize=(5 * len(speeds), 3.5), squeeze=False)
    for axis, (size, by_variant) in zip(axes[0], speeds.items(), strict=True):
        axis.bar_label(axis.barh(list(by_variant), list(by_variant.values())))
        axis.invert_yaxis()
        axis.set(title=size, xlabel="non-padding tokens per second")
    plt.tight_layout()
    plt.savefig(path)
