"""Server of the page: on this machine only, under an address that nobody can guess."""

import asyncio
import gc
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from energymodel.errors import InputError
from energymodel.explorer.explorer import Explorer
from energymodel.explorer.fragments import STATIC, page_html, static_text
from energymodel.explorer.guard import Guard, new_token
from energymodel.explorer.messages import LONGEST, read_message
from energymodel.explorer.session import Session
from energymodel.explorer.state import Asked

ADDRESS = "127.0.0.1"
MOST_PAGES = 16
WORKERS = 2
_CLOSED_BUSY = 1013
PAUSE = 1.0  # s, so that the first picture comes first
_LOG = logging.getLogger(__name__)


def application(explorer: Explorer, token: str, port: int, *, warm: bool = True) -> ASGIApp:
    """The application behind its guard, for a server at a port; `warm` prepares the search once a page is open."""
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="explorer")
    searches = ThreadPoolExecutor(MOST_PAGES + 1, thread_name_prefix="explorer search")  # all but one wait
    pages: set[Session] = set()
    prepared: list[object] = [] if warm else [None]

    async def page(_: Request) -> Response:
        return Response(page_html(explorer.space), media_type="text/html; charset=utf-8")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("Not found.", 404)
        return Response(static_text(name), media_type=f"{STATIC[name]}; charset=utf-8")

    async def live(channel: WebSocket) -> None:
        if len(pages) >= MOST_PAGES:
            await channel.close(_CLOSED_BUSY)
            return
        if not prepared:
            prepared.append(searches.submit(_prepare, explorer))
        session = Session(channel, explorer, workers, searches)
        pages.add(session)
        try:
            await session.run()
        finally:
            pages.discard(session)

    def saves(extension: str, kind: str, make: Callable[[Asked], str]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            text = await _body(request)
            try:
                asked = read_message(text, explorer.space.knobs).asked
                made = await asyncio.get_running_loop().run_in_executor(workers, make, asked)
            except InputError as error:
                return PlainTextResponse(str(error), 400)
            name = explorer.file_name(extension)
            headers = {"Content-Disposition": f'attachment; filename="{name}"'}
            return Response(made, media_type=f"{kind}; charset=utf-8", headers=headers)

        return answer

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/scenario.toml", saves("toml", "application/toml", explorer.scenario_toml), methods=["POST"]),
        Route("/report.html", saves("html", "text/html", explorer.report_html), methods=["POST"]),
        WebSocketRoute("/live", live),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _prepare(explorer: Explorer) -> None:
    time.sleep(PAUSE)
    try:
        explorer.warm()
        gc.freeze()  # as in the command
    except InputError as error:  # a scenario that cannot be searched can still be explored
        _LOG.warning("the search cannot be prepared: %s", error)
    except Exception:
        _LOG.exception("the search could not be prepared")


async def _body(request: Request) -> bytes:
    """The body of a request, but no more of it than a message may have."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST:
            break
    return body


class ExplorerServer:
    """The page at its address, served by a thread of its own until it is stopped."""

    def __init__(self, explorer: Explorer, port: int = 0, *, warm: bool = True) -> None:
        self._socket = _listening(port)
        self.port = int(self._socket.getsockname()[1])
        token = new_token()
        self.address = f"http://{ADDRESS}:{self.port}/{token}/"
        settings: dict[str, Any] = {
            "log_config": None,  # another one closes the handlers of the whole process, and absl's their streams
            "log_level": "warning",
            "access_log": False,
            "server_header": False,
            "ws": "websockets-sansio",
            "ws_max_size": 2 * LONGEST,
            "ws_per_message_deflate": False,
            "timeout_graceful_shutdown": 1,
            "lifespan": "off",
        }
        self._server = uvicorn.Server(uvicorn.Config(application(explorer, token, self.port, warm=warm), **settings))
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Serve until Ctrl-C."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> "ExplorerServer":
        self._thread = threading.Thread(target=self.serve, name="explorer server", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5.0)


def _listening(port: int) -> socket.socket:
    """A socket of this machine alone.

    **Raises:** `InputError` where the port is taken.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        listening.listen()  # whoever comes before the server runs waits for it
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--port {port}: {reason}. Choose another one, or leave it out for a free one.") from None
    return listening
