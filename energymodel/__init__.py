"""Energy, time, money and carbon of training a large language model, and the best plan, by gradients.

`__init__.pyi` lists the public names. They load on first use, so that the command line answers before JAX is imported;
so does what finds them, so that Ctrl-C is handled first (`runtime/process.py`).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # without `typing`, which takes longer to import than the rest of the start
    from typing import Any

_LAZY: list = []


def _lazy() -> list:
    """What gives an attribute, what lists them, and the public names."""
    if not _LAZY:
        import lazy_loader

        _LAZY.extend(lazy_loader.attach_stub(__name__, __file__))
    return _LAZY


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from importlib.metadata import version

        return version("energymodel")
    find, _, public = _lazy()
    return public if name == "__all__" else find(name)


def __dir__() -> list[str]:
    return _lazy()[1]()
