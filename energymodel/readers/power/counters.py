"""How does an energy counter that wraps around or starts anew go on rising?"""

import math

RANGES = (65532.610987, 262143.32885)
"""Where the counters of Linux powercap wrap around, as `max_energy_range_uj` states it [J]."""
MOST_ZONE_POWER = 3000.0
"""Power that no socket draws [W]."""


class CarriedOn:
    """A counter [J] that goes on rising; `wraps_at` [J] is where it begins at zero again, if that is known."""

    def __init__(self, wraps_at: float = math.nan) -> None:
        self.wraps_at = wraps_at
        self.sum = 0.0
        self.last = self.time = math.nan

    def add(self, time: float, energy: float) -> float:
        """The counter, carried on [J]."""
        if math.isnan(self.last):
            self.sum = energy
        elif energy >= self.last:
            self.sum += energy - self.last
        else:
            self.sum += self._over(time - self.time, energy)
        self.last, self.time = energy, time
        return self.sum

    def _over(self, seconds: float, energy: float) -> float:
        """Energy since the last reading, if the counter has wrapped around; if it has started anew, what it shows."""
        ranges = RANGES if math.isnan(self.wraps_at) else (self.wraps_at,)
        for end in ranges:
            rise = energy + end - self.last
            if self.last <= end * (1 + 1e-9) and 0 <= rise <= MOST_ZONE_POWER * max(seconds, 0.0):
                return rise
        return energy if energy <= MOST_ZONE_POWER * max(seconds, 0.0) else 0.0
