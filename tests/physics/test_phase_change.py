"""The boiling crisis: its scaling laws."""

import numpy as np

from energymodel.physics import phase_change as boil
from gradients import check_grads

FC72 = (88e3, 13.4, 1602.0, 0.0083)  # docs/physics.md B6: h_fg, rho_v, rho_l, sigma


def test_critical_heat_flux_vanishes_without_gravity_difference():
    latent, vapor, _, tension = FC72
    ratio = boil.critical_heat_flux(*FC72, gravity=16 * 9.81) / boil.critical_heat_flux(*FC72, gravity=9.81)
    np.testing.assert_allclose(ratio, 2.0)
    assert boil.critical_heat_flux(latent, vapor, vapor, tension) == 0.0


def test_gradients():
    check_grads(boil.critical_heat_flux, (0.88, 0.134, 16.0, 0.83), order=2, rtol=1e-4)
