"""Numbers of plans and steps on which the implementations are tested and timed."""

TESTED: dict[str, tuple[int, int, int]] = {"one plan": (1, 64, 1), "ragged": (131, 64, 4), "two blocks": (256, 12, 3)}
"""Plans, steps, saves."""

TIMED: dict[str, tuple[int, int, int]] = {
    "1e4 plans": (10_000, 200, 1),
    "1e5 plans": (100_000, 1000, 1),
    "1e6 plans": (1_000_000, 10_000, 1),
}
