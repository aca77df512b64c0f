"""Grids on which the implementations are tested.

Values along each axis; the last two of tests need more than one program, chunk or block, and fill none of them.
"""

TESTED: dict[str, tuple[int, ...]] = {
    "one point": (1, 1, 1, 1),
    "a line": (1, 1, 1, 67),
    "ragged": (3, 5, 7, 11),
    "outer and inner": (2, 3, 53, 97),
    "one long axis": (9001,),
}
