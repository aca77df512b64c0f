"""How long does the main command take, the first time, again, and again where JAX alone has kept its programs?

Prints wall-clock seconds of whole processes, on an empty cache folder of their own, and the ratio of the last two.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from energymodel.compilation import PACKAGE

COMMAND = [sys.executable, "-c", "from energymodel.cli import main; main()", "optimize", "llama-3.1-405b-h100"]


def measure(home: Path) -> float:
    """Seconds of one process."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    start = time.perf_counter()
    subprocess.run(COMMAND, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    home = Path(tempfile.mkdtemp())
    try:
        first, second = measure(home), measure(home)
        for program in home.rglob(f"{PACKAGE}-*"):
            program.unlink()
        traced = measure(home)
    finally:
        shutil.rmtree(home)
    print(
        f"{' '.join(COMMAND[3:])}: first {first:.1f} s, second {second:.1f} s; traced again for what JAX has kept "
        f"{traced:.1f} s, {traced / second:.2f} times as long"
    )


if __name__ == "__main__":
    main()
