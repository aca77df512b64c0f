import jax
import jax.numpy as jnp
import numpy as np

from energymodel.economics.carbon import Carbon, embodied_carbon, operational_carbon
from energymodel.economics.cost import YEAR
from gradients import check_grads

# docs/physics.md B9: 0.35 kg/kWh, 4 years, u = 0.8
CARBON = Carbon(intensity=0.35 / 3.6e6, chip_life=4 * YEAR, utilization=0.8, embodied_multiplier=1.5)


def test_whole_life_in_use_writes_off_the_whole_chip():
    np.testing.assert_allclose(embodied_carbon(150.0, 8.0, 0.8 * 4 * YEAR, 4 * YEAR, 0.8), 1200.0, rtol=1e-14)


def test_component_calls_the_formulas():
    np.testing.assert_allclose(CARBON.operational(1e9), operational_carbon(1e9, 0.35 / 3.6e6), rtol=1e-14)
    np.testing.assert_allclose(
        CARBON.embodied(150.0, 8.0, 1e6), 1.5 * embodied_carbon(150.0, 8.0, 1e6, 4 * YEAR, 0.8), rtol=1e-14
    )


def test_no_energy_no_operational_carbon():
    assert operational_carbon(0.0, 1e-7) == 0.0
    assert embodied_carbon(150.0, 8.0, 0.0, YEAR, 0.8) == 0.0


def test_carbon_gradient():
    def emission(carbon, energy, chips, time):
        return (carbon.operational(energy * 1e9) + carbon.embodied(150.0, chips, time * 1e6)) / 100

    arguments = (jax.tree.map(jnp.asarray, CARBON), 1.0, 8.0, 1.0)
    check_grads(emission, arguments, order=1, modes=("fwd", "rev"), eps=1e-8, rtol=1e-3)
