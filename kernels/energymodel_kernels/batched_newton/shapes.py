"""Sizes of the problems on which the implementations are tested."""

TESTED: dict[str, tuple[int, int, int]] = {
    "one problem": (1, 3, 2),
    "ragged": (131, 5, 7),
    "a row for each": (3, 8, 8),
    "by program": (5, 20, 9),
    "largest": (2, 40, 45),
}
"""Problems, variables, rows."""
