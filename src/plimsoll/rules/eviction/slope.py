"""How fast a signal falls, and when it reaches its threshold if that goes on.

The slope is a straight line through the readings of the last minute (least squares), so that one burst does not decide:
readings 100 at 0 s, 90 at 10 s and 80 at 20 s fall by 1 per second; with a threshold of 50, 30 s are left.
"""

from __future__ import annotations

from collections.abc import Sequence

WINDOW_S = 60.0
Reading = tuple[float, float]  # time in seconds, value


def slope_per_s(readings: Sequence[Reading]) -> float:
    """0 for fewer than two readings, or readings of one moment."""
    count = len(readings)
    if count < 2:
        return 0.0
    mean_s, mean = sum(at for at, _ in readings) / count, sum(value for _, value in readings) / count
    spread = sum((at - mean_s) ** 2 for at, _ in readings)
    if spread <= 0:
        return 0.0
    return sum((at - mean_s) * (value - mean) for at, value in readings) / spread


def seconds_left(distance: float, slope: float) -> float | None:
    """Until a falling value has covered the distance; 0 if it has already, None if it does not fall."""
    if distance <= 0:
        return 0.0
    return None if slope >= 0 else distance / -slope
