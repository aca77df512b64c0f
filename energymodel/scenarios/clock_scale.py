"""What is a clock in MHz as a share of the accelerator's reference clock, and back?

The model knows shares: at 1 the chip runs at its reference clock, at which its peak rates hold. People lock clocks in
MHz (`nvidia-smi -lgc 1200`), so that both are read and written.
"""

import math
from typing import Any, NamedTuple

from energymodel.errors import InputError
from energymodel.scenarios.files import is_quantity
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import TrainingPlan
from energymodel.units import convert, parse_quantity

CLOCK = "plan.clock"
REFERENCE_CLOCK = "system.accelerator.reference_clock"
ROUNDING_ERROR = 1e-9  # of a product of shares
ROUNDING = 2e-3  # of a clock: presets state the ends of its range to four digits

LEAST_MEGAHERTZ = 50.0
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

    def share(self, given: Any, where: str) -> Any:
        """What is given for a clock, as a share where it is a frequency; everything else as it is.

        **Arguments:**

        - `given`: text or a table with value and unit, such as "1200 MHz".
        - `where`: what messages call it.

        **Raises:** `InputError` for a clock outside the range of the accelerator.
        """
        if not is_frequency(given):
            self._refuse_bare_megahertz(given, where)
            return given
        if is_quantity(given):
            value = convert(float(given["value"]), given["unit"], "Hz", where)
            return {**given, "value": self.share_of(value, where), "unit": "1"}
        return self.share_of(parse_quantity(given, "Hz", where), where)

    def _refuse_bare_megahertz(self, given: Any, where: str) -> None:
        """Refuse a number that can only have been meant in MHz.

        **Raises:** `InputError` that says how to write it.
        """
        try:
            number = float(given["value"] if is_quantity(given) else given)
        except (TypeError, ValueError):
            return  # what it is instead is told where it is read
        if LEAST_MEGAHERTZ <= number < math.inf:
            raise InputError(
                f"{where}: {number:g} has no unit, and as a share of the reference clock it is above 1. "
                f'Did you mean "{number:g} MHz"?'
            )

    def share_of(self, frequency: float, where: str) -> float:
        """A frequency [Hz] as a share of the reference clock [1].

        **Raises:** `InputError` for a clock outside the range of the accelerator.
        """
        share = frequency / self.reference
        if self.minimum * (1.0 - ROUNDING) <= share <= 1.0 + ROUNDING:
            return min(max(share, self.minimum), 1.0)
        ends = f"{self.megahertz(self.minimum)} to {self.megahertz(1.0)}"
        why = (
            f"above the reference clock (system.accelerator.reference_clock), at which the peak rates hold; what a "
            f"higher clock adds is not modeled. Give {ends}, or 1."
            if share > 1.0
            else f"below the lowest clock of the accelerator (system.accelerator.minimum_clock). Give {ends}."
        )
        raise InputError(f"{where}: {self.megahertz(share)} is {why}")


def is_frequency(given: Any) -> bool:
    """Whether a number is given with a unit of frequency, as text or as a table."""
    text = given.get("unit") if is_quantity(given) else given
    return isinstance(text, str) and text.strip().lower().endswith("hz")


def check_clock(accelerator: Accelerator, plan: TrainingPlan) -> None:
    """Check the clock of a plan against the range of the accelerator.

    **Raises:** `InputError` for a clock outside it.
    """
    scale, clock = ClockScale.of(accelerator), float(plan.clock)
    if not scale.minimum * (1.0 - ROUNDING_ERROR) <= clock <= 1.0 + ROUNDING_ERROR:
        raise InputError(
            f"{CLOCK}: {clock:g} is outside {scale.minimum:g} to 1, the share of the reference clock that the "
            f"accelerator allows ({scale.megahertz(scale.minimum)} to {scale.megahertz(1.0)}; MHz may be given too)."
        )
