import numpy as np

from energymodel.economics.carbon import Carbon, embodied_carbon, operational_carbon
from energymodel.economics.cost import YEAR

# docs/physics.md B9: 0.35 kg/kWh, 4 years, u = 0.8
CARBON = Carbon(intensity=0.35 / 3.6e6, chip_life=4 * YEAR, utilization=0.8, embodied_multiplier=1.5)


def test_whole_life_in_use_writes_off_the_whole_chip():
    np.testing.assert_allclose(embodied_carbon(150.0, 8.0, 0.8 * 4 * YEAR, 4 * YEAR, 0.8), 1200.0, rtol=1e-14)


def test_component_calls_the_formulas():
    np.testing.assert_allclose(CARBON.operational(1e9), operational_carbon(1e9, 0.35 / 3.6e6), rtol=1e-14)
    np.testing.assert_allclose(
        CARBON.embodied(150.0, 8.0, 1e6), 1.5 * embodied_carbon(150.0, 8.0, 1e6, 4 * YEAR, 0.8), rtol=1e-14
    )
