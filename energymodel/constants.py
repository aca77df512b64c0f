"""Constants of nature that are exact.

The SI fixes the first four since 2019 [CODATA 2018]; everything else in the project is data with a
source and an uncertainty.
"""

BOLTZMANN = 1.380649e-23
"""Boltzmann constant k_B [J/K], exact."""

PLANCK = 6.62607015e-34
"""Planck constant h [J s], exact."""

ELEMENTARY_CHARGE = 1.602176634e-19
"""Elementary charge e [C], exact."""

SPEED_OF_LIGHT = 299_792_458.0
"""Speed of light in vacuum c [m/s], exact."""

STANDARD_GRAVITY = 9.80665
"""Standard acceleration of gravity g_n [m/s^2], exact by convention."""

ZERO_CELSIUS = 273.15
"""0 °C [K], exact."""
