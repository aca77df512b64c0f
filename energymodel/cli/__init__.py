"""Command line: `energymodel evaluate`, `optimize`, `limits`, `presets`.

Nothing is imported before Ctrl-C is handled (`runtime/process.py`), and nothing heavy before a command runs, so that
help answers at once.
"""

from energymodel.runtime import process

TYPE_CHECKING = False
if TYPE_CHECKING:  # without `typing`, which takes longer to import than all the rest here
    from energymodel.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; compiled programs are kept between runs."""
    process.start()
    from energymodel.cli.commands import run_command

    run_command()


def __getattr__(name: str) -> object:
    if name == "app":
        from energymodel.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
