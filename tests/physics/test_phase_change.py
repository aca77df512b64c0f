"""Boiling: scaling laws, inverse, the need for more area."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.physics import phase_change as boil
from gradients import check_grads

FC72 = (88e3, 13.4, 1602.0, 0.0083)  # docs/physics.md B6: h_fg, rho_v, rho_l, sigma
WATER = (279e-6, 2257e3, 957.9, 0.5956, 0.0589, 4217.0, 1.76, 0.0128, 1.0)  # Incropera et al. 2007, ex. 10.1


@given(superheat=st.floats(1.0, 40.0), factor=st.floats(0.5, 3.0))
@settings(max_examples=25, deadline=None)
def test_nucleate_boiling_is_cubic_and_its_inverse_exact(superheat, factor):
    flux = boil.boiling_heat_flux(140.0, superheat)
    np.testing.assert_allclose(boil.boiling_heat_flux(140.0, factor * superheat), factor**3 * flux, rtol=1e-5)
    np.testing.assert_allclose(boil.boiling_superheat(140.0, flux), superheat, rtol=1e-5)


def test_rohsenow_coefficient_falls_with_the_cube_of_the_surface_factor():
    doubled = (*WATER[:7], 2 * WATER[7], WATER[8])
    np.testing.assert_allclose(boil.rohsenow_coefficient(*WATER), 8 * boil.rohsenow_coefficient(*doubled))


def test_critical_heat_flux_vanishes_without_gravity_difference():
    latent, vapor, _, tension = FC72
    ratio = boil.critical_heat_flux(*FC72, gravity=16 * 9.81) / boil.critical_heat_flux(*FC72, gravity=9.81)
    np.testing.assert_allclose(ratio, 2.0)
    assert boil.critical_heat_flux(latent, vapor, vapor, tension) == 0.0


def test_area_enhancement_brings_the_flux_to_the_margin():
    crisis = boil.critical_heat_flux(*FC72)
    enhancement = boil.area_enhancement_needed(boil.heat_flux(700.0, 8.14e-4), crisis, 0.7)
    assert 8.6 < enhancement < 8.7
    np.testing.assert_allclose(boil.heat_flux(700.0, 8.14e-4 * enhancement), 0.7 * crisis)


def test_coolant_carries_its_latent_heat():
    np.testing.assert_allclose(boil.coolant_flow(700.0, 88e3, 1.0) * 88e3, 700.0)


def test_gradients():
    check_grads(boil.coolant_flow, (7.0, 8.8, 0.7), order=2)
    check_grads(boil.heat_flux, (7.0, 8.0), order=2)
    scaled = (0.28, 2.257, 0.958, 0.0006, 0.59, 4.217, 1.76, 0.5, 1.0)
    check_grads(boil.rohsenow_coefficient, scaled, order=1, rtol=1e-4)
    check_grads(boil.boiling_heat_flux, (1.4, 1.8), order=2)
    check_grads(boil.boiling_superheat, (1.4, 8.0), order=2)
    check_grads(boil.critical_heat_flux, (0.88, 0.134, 16.0, 0.83), order=2, rtol=1e-4)
    check_grads(boil.area_enhancement_needed, (8.6, 1.4, 0.7), order=1, rtol=1e-5)
