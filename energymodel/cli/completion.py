"""What may stand at the cursor, for the shells that `--install-completion` teaches: preset names and files.

It reads the folders of the presets by itself: whoever presses the tab key does not wait for JAX to be imported.
"""

from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "presets"
CALIBRATIONS = ("batch", "kernels", "loss", "node", "power", "step-time")
"""Those of `calibration.kinds`, without importing it."""
MOST = 200
"""Files that are offered at most."""


def files(incomplete: str) -> list[str]:
    """Files and folders that begin so; a folder ends with "/"."""
    folder, _, begun = incomplete.rpartition("/")
    here = Path(folder or ("/" if incomplete.startswith("/") else "."))
    prefix = incomplete[: len(incomplete) - len(begun)]
    try:
        paths = sorted(path for path in here.iterdir() if path.name.startswith(begun))[:MOST]
        return [f"{prefix}{path.name}{'/' if path.is_dir() else ''}" for path in paths]
    except OSError:
        return []


def _names(*categories: str, or_files: bool = False) -> Callable[[str], list[str]]:
    """Offers presets of categories, without those that others are made of, whose names begin with "_"; then files."""

    def offer(incomplete: str) -> list[str]:
        paths = (path for category in categories for path in sorted((FOLDER / category).glob("[!_]*.toml")))
        names = dict.fromkeys(path.stem for path in paths if path.stem.startswith(incomplete))
        return [*names, *(files(incomplete) if or_files else ())]

    return offer


scenarios = _names("scenarios", or_files=True)
models = _names("models", or_files=True)
accelerators = _names("hardware", or_files=True)
clusters = _names("clusters", or_files=True)
frameworks = _names("software")
priors = _names("scenarios", "hardware", "clusters", or_files=True)


def calibrations(incomplete: str) -> list[str]:
    """Kinds of calibrations."""
    return [name for name in CALIBRATIONS if name.startswith(incomplete)]


def categories(incomplete: str) -> list[str]:
    """Categories of presets."""
    paths = sorted(path for path in FOLDER.iterdir() if path.is_dir() and any(path.glob("*.toml")))
    return [path.name for path in paths if path.name.startswith(incomplete)]


def presets(incomplete: str) -> list[str]:
    """Presets of all categories."""
    return sorted(_names(*categories(""))(incomplete))
