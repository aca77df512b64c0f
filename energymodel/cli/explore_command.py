"""`energymodel explore`: how does a plan follow its numbers? A page with sliders, on this machine only."""

import gc
import importlib.util
import sys
import webbrowser
from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.source import Source
from energymodel.errors import InputError

NEEDED = ("starlette", "uvicorn", "websockets")
Port = Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="A free one unless given.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")]


@shell.guarded
def command(source: Source, port: Port = 0, no_browser: NoBrowser = False) -> None:
    """Open a page on which a plan follows sliders: outcome, limits, roofline, temperature and front."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise InputError(f'explore needs {", ".join(missing)}. Install it: pip install "energymodel[explore]".')
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.explorer.explorer import Explorer
        from energymodel.explorer.server import ExplorerServer

        progress(f"loading {source.name} ...")
        scenario = source.read()
        progress("compiling the model ...")
        server = ExplorerServer(Explorer(scenario), port)
        gc.freeze()  # what the trace left would be searched for garbage while a slider moves
    print(f"{scenario.title}: {server.address}")
    print("The address works on this machine only. Ctrl-C ends the explorer.", file=sys.stderr, flush=True)
    if not no_browser:
        webbrowser.open(server.address)
    server.serve()
