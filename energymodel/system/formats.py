"""Which number formats does a chip multiply in, and does a plan ask for another?

A peak rate of zero says that the chip has no products in this format. All chips have 16-bit products.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from energymodel.errors import InputError
from energymodel.system.accelerator import Accelerator

PEAK_OF = {"fp8": "peak_flops_fp8", "fp4": "peak_flops_fp4", "tf32": "peak_flops_tf32", "fp32": "peak_flops_fp32"}
"""Field of an accelerator with the peak rate of a format, by the field of a layout with its share of products."""


def formats_of(chip: Accelerator) -> tuple[str, ...]:
    """Number formats in which a chip multiplies, bf16 first."""
    return ("bf16", *(name for name, field in PEAK_OF.items() if np.all(np.asarray(getattr(chip, field)) > 0.0)))


def check_formats(chip: Accelerator, shares: Mapping[str, Any], where: str, name: str = "") -> None:
    """Check that a chip has every format that products are to be in. Says nothing of numbers that are traced.

    **Arguments:**

    - `shares`: share of the products by format, or its highest value.
    - `where`: beginning of the message, such as `plan.layout`.
    - `name`: title of the accelerator.

    **Raises:** `InputError` for the first format that the chip lacks.
    """
    for format_name, field in PEAK_OF.items():
        share, peak = shares.get(format_name, 0.0), getattr(chip, field)
        if isinstance(share, Tracer) or isinstance(peak, Tracer):
            continue
        if np.any((np.asarray(share) > 0.0) & (np.asarray(peak) <= 0.0)):
            raise InputError(
                f"{where}.{format_name}: {name or 'the accelerator'} has no {format_name}; it has: "
                f"{', '.join(formats_of(chip))}. Set the share to 0, or choose another accelerator."
            )
