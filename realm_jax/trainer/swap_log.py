"""The swaps of a run: from which training step on each index was searched."""

SwapLog = list[tuple[int, int]]  # (first training step, index step), ascending


def index_step_at(swaps: SwapLog, step: int) -> int:
    """The index step that training step `step` used."""
    return [index for first, index in swaps if first <= step][-1]


def staleness(swaps: SwapLog, steps: int) -> dict[str, float]:
    """Mean and largest (training step - index step) over steps 0 .. steps - 1."""
    ages = [step - index_step_at(swaps, step) for step in range(steps)] or [0]
    return {"mean": sum(ages) / len(ages), "max": float(max(ages))}
