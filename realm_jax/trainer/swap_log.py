"""The swap log of a run: the training step from which each index was searched."""

SwapLog = list[tuple[int, int]]  # (first training step, index step), ascending


def index_step_at(swaps: SwapLog, step: int) -> int:
    """The step of the index that training step `step` searched."""
    return [index for first, index in swaps if first <= step][-1]


def staleness(swaps: SwapLog, steps: int) -> dict[str, float]:
    """Mean and maximum of (training step - index step) over steps 0 to steps - 1."""
    ages = [step - index_step_at(swaps, step) for step in range(steps)] or [0]
    return {"mean": sum(ages) / len(ages), "max": float(max(ages))}
