"""How are the lines of a log of any length read, one at a time?"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from energymodel.errors import InputError

LONGEST = 2**20
"""Characters of a line; a longer one is left out."""
_CHUNK = 2**16
_END = re.compile(r"\r\n|\n|\r")


def too_long(longest: int = LONGEST) -> str:
    """The reason for which a line is left out."""
    return f"lines of more than {longest} characters"


class Lines(Iterator[str]):
    """The lines of a file, without their ends; a carriage return alone ends one too, as progress bars print it.

    NUL, which a crash leaves behind, is dropped; bytes that are no text become U+FFFD.
    """

    def __init__(self, path: Path, longest: int = LONGEST) -> None:
        self.left_out: Counter[str] = Counter()
        self.unfinished = False
        """True once the last line has been given and nothing ended it: it may be half written."""
        self._path = path
        self._lines = self._read(path, longest)

    def __next__(self) -> str:
        return next(self._lines)

    def _read(self, path: Path, longest: int) -> Iterator[str]:
        rest, skipping, size = "", False, max(_CHUNK, longest // 16)
        try:
            with path.open("rb") as file:
                start = file.read(size)
                decoder = codecs.getincrementaldecoder(_encoding(start))(errors="replace")
                chunk = start
                while chunk:
                    text = rest + decoder.decode(chunk).replace("\0", "")
                    held = "\r" if text.endswith("\r") else ""  # may be half of "\r\n"
                    *lines, rest = _END.split(text[: len(text) - len(held)])
                    for line in lines:
                        if skipping or len(line) > longest:
                            self._skip(longest)
                            skipping = False
                        else:
                            yield line
                    rest += held
                    if len(rest) > longest:
                        rest, skipping = held, True
                    chunk = file.read(size)
                rest += decoder.decode(b"", final=True)
        except OSError as error:
            raise InputError(f'Cannot read "{path}": {(error.strerror or str(error)).lower()}.') from error
        if skipping or len(rest) > longest:
            self._skip(longest)
        elif rest:
            self.unfinished = not rest.endswith("\r")
            yield rest.rstrip("\r")

    def _skip(self, longest: int) -> None:
        self.left_out[too_long(longest)] += 1


def _encoding(start: bytes) -> str:
    """UTF-8, or what a byte order mark says: a shell of Windows writes UTF-16."""
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
