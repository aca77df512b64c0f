"""Numbers of plans and steps on which the implementations are tested."""

TESTED: dict[str, tuple[int, int, int]] = {"one plan": (1, 64, 1), "ragged": (131, 64, 4), "two blocks": (256, 12, 3)}
"""Plans, steps, saves."""
