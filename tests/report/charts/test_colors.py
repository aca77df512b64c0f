"""The colors can be told from the page and from each other, with every kind of color vision."""

import itertools
import re

import numpy as np
import pytest

from energymodel.report.drawing import chart_css

# Severity 1.0 of [Machado, Oliveira & Fernandes 2009, tables of the supplement].
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def variables(start: str) -> dict[str, np.ndarray]:
    """Linear RGB of the variables of a theme."""
    css = chart_css()
    block = css[css.index(start) : css.index("}", css.index(start))]
    codes = re.findall(r"--em-([\w-]+): #(\w{6})", block)
    assert len(codes) >= 11
    return {name: linear(code) for name, code in codes}


def linear(code: str) -> np.ndarray:
    parts = np.array([int(code[start : start + 2], 16) for start in (0, 2, 4)]) / 255.0
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(*colors: np.ndarray) -> float:
    """Contrast ratio [WCAG 2.2]."""
    light = sorted(float(TO_XYZ[1] @ color) + 0.05 for color in colors)
    return light[1] / light[0]


def lab(color: np.ndarray) -> np.ndarray:
    """CIE L*a*b* for the white of D65."""
    ratio = TO_XYZ @ np.clip(color, 0.0, 1.0) / TO_XYZ.sum(axis=1)
    root = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16.0 / 116.0)
    return np.array([116.0 * root[1] - 16.0, 500.0 * (root[0] - root[1]), 200.0 * (root[1] - root[2])])


@pytest.mark.parametrize("start", [":root {", ":root.em-dark {", "  :root:not(.em-light) {"])
def test_contrast(start: str):
    colors = variables(start)
    page = colors["surface"]
    assert contrast(colors["ink"], page) >= 7.0
    assert contrast(colors["muted"], page) >= 4.5
    for index in range(5):
        hue = colors[f"hue{index}"]
        assert contrast(hue, page) >= 3.0  # WCAG 2.2, 1.4.11
        assert contrast(hue, colors["on-hue"]) >= 4.5  # of the numbers within bars


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("start", [":root {", ":root.em-dark {"])
def test_hues_differ(start: str, vision: str):
    colors = variables(start)
    seen = [lab(np.asarray(VISION[vision]) @ colors[f"hue{index}"]) for index in range(5)]
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(first - second) > 10.0  # 2.3 is just noticeable [Mahy et al. 1994]


def test_both_dark_themes_are_one():
    by_choice, by_system = variables(":root.em-dark {"), variables("  :root:not(.em-light) {")
    assert all(np.array_equal(by_choice[name], by_system[name]) for name in by_choice)
