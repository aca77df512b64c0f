"""Clocks in MHz as shares of an accelerator's reference clock, and back.

The model knows shares: at 1 the chip runs at its reference clock, at which its peak rates hold. People lock clocks in
MHz (`nvidia-smi -lgc 1200`), so that both are read and written.
"""

import math
from typing import Any, NamedTuple

from energymodel.errors import InputError
from energymodel.scenarios.files import is_quantity
from energymodel.system.accelerator import Accelerator
from energymodel.units import convert, parse_quantity

CLOCK = "plan.clock"
REFERENCE_CLOCK = "system.accelerator.reference_clock"
ROUNDING = 2e-3  # of a clock: presets state the ends of its range to four digits
LOWEST_MEGAHERTZ = 50.0
"""A bare number from here on is no share with a slip of the decimal point, but MHz without their unit."""


class ClockScale(NamedTuple):
    """Reference clock [Hz] of an accelerator, and its lowest clock as a share of it [1]."""

    reference: float
    minimum: float

    @classmethod
    def of(cls, accelerator: Accelerator) -> "ClockScale":
        """That of an accelerator."""
        return cls(float(accelerator.reference_clock), float(accelerator.minimum_clock))

    def megahertz(self, share: float) -> str:
        """A share as a person reads it beside the share, such as "1765 MHz"."""
        return f"{share * self.reference / 1e6:.0f} MHz"

    @property
    def ends(self) -> str:
        """The range of clocks in MHz."""
        return f"{self.megahertz(self.minimum)} to {self.megahertz(1.0)}"

    def share(self, clock: Any, where: str) -> Any:
        """A clock as a share where it is a frequency; everything else as it is.

        **Arguments:**

        - `clock`: text or a table with value and unit, such as "1200 MHz".
        - `where`: what messages call it.

        **Raises:** `InputError` for a clock outside the range of the accelerator, and for MHz without their unit.
        """
        if is_frequency(clock):
            if not is_quantity(clock):
                return self.share_of(parse_quantity(clock, "Hz", where), where)
            value = convert(float(clock["value"]), clock["unit"], "Hz", where)
            return {**clock, "value": self.share_of(value, where), "unit": "1"}
        try:
            number = float(clock["value"] if is_quantity(clock) else clock)
        except (TypeError, ValueError):
            return clock  # refused where it is read
        if LOWEST_MEGAHERTZ <= number < math.inf:
            raise InputError(
                f"{where}: {number:g} has no unit, and as a share of the reference clock it is above 1. "
                f'Did you mean "{number:g} MHz"?'
            )
        return clock

    def share_of(self, frequency: float, where: str) -> float:
        """A frequency [Hz] as a share of the reference clock [1].

        **Raises:** `InputError` for a clock outside the range of the accelerator.
        """
        share = frequency / self.reference
        if self.minimum * (1.0 - ROUNDING) <= share <= 1.0 + ROUNDING:
            return min(max(share, self.minimum), 1.0)
        reason = (
            "above the reference clock (system.accelerator.reference_clock), at which the peak rates hold; what a "
            f"higher clock adds is not modeled. Give {self.ends}, or 1."
            if share > 1.0
            else f"below the lowest clock of the accelerator (system.accelerator.minimum_clock). Give {self.ends}."
        )
        raise InputError(f"{where}: {self.megahertz(share)} is {reason}")


def is_frequency(clock: Any) -> bool:
    """Whether a number is given with a unit of frequency, as text or as a table."""
    text = clock.get("unit") if is_quantity(clock) else clock
    return isinstance(text, str) and text.strip().lower().endswith("hz")
