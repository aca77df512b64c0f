"""What may stand at the cursor, for the shells that `--install-completion` teaches: preset names and files.

It reads the folders of the presets by itself: whoever presses the tab key does not wait for JAX to be imported.
"""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "presets"
CALIBRATIONS = ("batch", "loss", "node", "power", "step-time")
"""Those of `calibration.kinds`, without importing it."""
MOST = 200
"""Files that are offered at most."""


def _presets(category: str, begun: str) -> list[str]:
    """Names of the presets of a category that begin so; those that others are made of begin with "_"."""
    found = sorted(path.stem for path in (FOLDER / category).glob("*.toml"))
    return [name for name in found if name.startswith(begun) and not name.startswith("_")]


def files(incomplete: str) -> list[str]:
    """Files and folders that begin so; a folder ends with "/"."""
    folder, _, begun = incomplete.rpartition("/")
    here = Path(folder or ("/" if incomplete.startswith("/") else "."))
    prefix = incomplete[: len(incomplete) - len(begun)]
    try:
        found = sorted(one for one in here.iterdir() if one.name.startswith(begun))[:MOST]
        return [f"{prefix}{one.name}{'/' if one.is_dir() else ''}" for one in found]
    except OSError:
        return []


def scenarios(incomplete: str) -> list[str]:
    """Scenarios, and files."""
    return _presets("scenarios", incomplete) + files(incomplete)


def models(incomplete: str) -> list[str]:
    """Models, and files."""
    return _presets("models", incomplete) + files(incomplete)


def accelerators(incomplete: str) -> list[str]:
    """Accelerators."""
    return _presets("hardware", incomplete)


def clusters(incomplete: str) -> list[str]:
    """Clusters, and files."""
    return _presets("clusters", incomplete) + files(incomplete)


def priors(incomplete: str) -> list[str]:
    """What a calibration may begin with: scenarios, accelerators, clusters, and files."""
    own = [name for category in ("scenarios", "hardware", "clusters") for name in _presets(category, incomplete)]
    return own + files(incomplete)


def calibrations(incomplete: str) -> list[str]:
    """Kinds of calibrations."""
    return [name for name in CALIBRATIONS if name.startswith(incomplete)]


def categories(incomplete: str) -> list[str]:
    """Categories of presets."""
    return [name for name in _categories() if name.startswith(incomplete)]


def presets(incomplete: str) -> list[str]:
    """Presets of all categories."""
    return sorted({name for category in _categories() for name in _presets(category, incomplete)})


def _categories() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and any(path.glob("*.toml")))
