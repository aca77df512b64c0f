"""The same from a shell: `energymodel evaluate`, `optimize`, `limits`, `presets`.

Nothing heavy is imported before a command runs, so that help answers at once.
"""

from energymodel.cli.app import app, main

__all__ = ["app", "main"]
