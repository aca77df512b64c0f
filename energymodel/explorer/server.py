"""Server of the page: on this machine only, under an address that nobody can guess; and its talk with open pages."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from energymodel.errors import InputError
from energymodel.explorer.explorer import Explorer, Improved, Page
from energymodel.explorer.fragments import STATIC, knob_html, page_html, static_text
from energymodel.explorer.guard import Guard, new_token
from energymodel.explorer.messages import LONGEST, Message, RefusedPartError, read_message, request_of
from energymodel.explorer.state import Asked

ADDRESS = "127.0.0.1"
MOST_PAGES = 16
WORKERS = 2
_CLOSED_BUSY, TOO_LONG = 1013, 1009
DEFECT = "Something went wrong in the explorer; its terminal says what. The picture is the last good one."
MOST_FAULTS = 200
"""Messages that are refused before the connection is closed."""
PAUSE = 1.0  # s, so that the first picture comes first
_LOG = logging.getLogger(__name__)


class Session:
    """The conversation with one page.

    Of states that wait, only the newest is drawn, and only of the newest plan at rest intervals are found: while one is
    computed, those that came in between are dropped. Searches, which take long, have threads of their own.
    """

    def __init__(self, socket: WebSocket, explorer: Explorer, workers: Executor, searches: Executor) -> None:
        self._socket, self._explorer, self._workers, self._searches = socket, explorer, workers, searches
        self._page = Page(explorer)
        self._state: Message | None = None
        self._settled: Message | None = None
        self._resting: Message | None = None
        self._waiting, self._rests = asyncio.Event(), asyncio.Event()
        self._faults = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the page is closed."""
        await self._socket.accept()
        self._beside(self._draw())
        self._beside(self._estimate())
        try:
            while self._faults < MOST_FAULTS:
                received = await self._socket.receive()
                if received["type"] == "websocket.disconnect":
                    return
                text = received.get("text") or received.get("bytes") or ""
                if len(text) > LONGEST:
                    await self._socket.close(TOO_LONG)
                    return
                await self._take(text)
            await self._socket.close()
        except WebSocketDisconnect:
            pass
        finally:
            for task in self._tasks:
                task.cancel()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes long while messages come."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, text: str | bytes) -> None:
        try:
            message = read_message(text, self._explorer.space.knobs)
        except InputError as error:
            self._faults += 1
            await self._send(_refusal(*request_of(text), error))
            return
        if message.kind == "state":
            self._state = message
            self._waiting.set()
        elif message.kind == "settled":
            self._settled = message
            self._waiting.set()
        elif message.kind == "pins":
            await self._answer(message, lambda: self._page.pin(message))
        elif message.kind == "knob":
            knob = self._explorer.space.knobs[message.path]
            await self._send({"kind": "knob", "path": message.path, "html": knob_html(knob, removable=True)})
        else:
            self._beside(self._optimize(message))

    async def _draw(self) -> None:
        """Draw the newest state; once the controls rest, its intervals may be found."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            state, self._state = self._state, None
            if state is not None:
                await self._answer(state, lambda state=state: self._page.picture(state))
                await asyncio.sleep(0)
            if self._settled is not None and self._state is None:
                self._resting, self._settled = self._settled, None
                self._rests.set()

    async def _estimate(self) -> None:
        """Find the intervals of one plan at a time, and send them."""
        while True:
            await self._rests.wait()
            self._rests.clear()
            if (message := self._resting) is not None:
                await self._answer(message, lambda message=message: self._page.estimate(message), self._workers)
                await self._answer(message, self._page.intervals)

    async def _answer(
        self, message: Message, make: Callable[[], Mapping[str, Any]], executor: Executor | None = None
    ) -> None:
        """Send what is made of a message, if anything, or one sentence on why not; by an executor if it takes long."""
        try:
            answer = await asyncio.get_running_loop().run_in_executor(executor, make) if executor else make()
        except InputError as error:
            answer = _refusal(message.kind, message.number, error)
        except Exception:
            _LOG.exception("a request of the page failed: %s", message.kind)
            answer = _refusal(message.kind, message.number, DEFECT)
        if answer:
            await self._send(answer)

    async def _optimize(self, message: Message) -> None:
        loop = asyncio.get_running_loop()

        def tell(sentence: str) -> None:
            with contextlib.suppress(RuntimeError):  # the page was closed meanwhile
                asyncio.run_coroutine_threadsafe(self._send({"kind": "progress", "message": sentence}), loop)

        def search() -> Mapping[str, Any]:
            try:
                improved = self._explorer.optimize(message.asked, message.minimize, tell)
            except InputError as error:
                improved = Improved(str(error))
            return {"kind": "optimized", "number": message.number, **improved._asdict()}

        await self._answer(message, search, self._searches)

    async def _send(self, answer: Mapping[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # closed while it was computed
            await self._socket.send_text(json.dumps(answer, allow_nan=False, separators=(",", ":")))


def _refusal(request: str, number: int, reason: InputError | str) -> Mapping[str, Any]:
    part = {"path": reason.path} if isinstance(reason, RefusedPartError) else {}
    return {"kind": "error", "request": request, "number": number, **part, "message": str(reason)}


def application(explorer: Explorer, token: str, port: int, *, warm: bool = True) -> ASGIApp:
    """The application behind its guard, for a server at a port; `warm` prepares the search once a page is open."""
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="explorer")
    searches = ThreadPoolExecutor(MOST_PAGES + 1, thread_name_prefix="explorer search")  # all but one wait
    pages: set[Session] = set()
    unprepared = [explorer] if warm else []

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
        if unprepared:
            searches.submit(_prepare, unprepared.pop())
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
            headers = {"Content-Disposition": f'attachment; filename="{explorer.file_name(extension)}"'}
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
    """A socket of this machine alone; `InputError` where the port is taken."""
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
