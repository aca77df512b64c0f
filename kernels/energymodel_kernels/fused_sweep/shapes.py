"""Grids on which the implementations are tested and timed.

Values along each axis; the last two of tests need more than one program, chunk or block, and fill none of them.
"""

TESTED: dict[str, tuple[int, ...]] = {
    "one point": (1, 1, 1, 1),
    "a line": (1, 1, 1, 67),
    "ragged": (3, 5, 7, 11),
    "outer and inner": (2, 3, 53, 97),
    "one long axis": (9001,),
}

TIMED: dict[str, tuple[int, ...]] = {
    "1e7": (100, 10, 100, 100),
    "1e8": (100, 100, 100, 100),
    "1e9": (100, 1000, 100, 100),
    "1e10": (1000, 1000, 100, 100),
}
