"""Conversation of one open page with the explorer: the newest state first, searches beside it, a sentence on errors."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from energymodel.errors import InputError
from energymodel.explorer.explorer import Explorer, Page
from energymodel.explorer.fragments import knob_html
from energymodel.explorer.messages import LONGEST, Message, RefusedPartError, read_message, request_of
from energymodel.explorer.optimize_here import Improved

_LOG = logging.getLogger(__name__)
DEFECT = "Something went wrong in the explorer; its terminal says what. The picture is the last good one."
TOO_LONG = 1009
MOST_FAULTS = 200
"""Messages that are refused before the connection is closed."""


class Session:
    """The conversation with one page.

    Of states that wait, only the newest is drawn: while one is computed, those that came in between are dropped.
    Searches, which take long, have threads of their own.
    """

    def __init__(self, socket: WebSocket, explorer: Explorer, workers: Executor, searches: Executor) -> None:
        self._socket, self._explorer, self._workers, self._searches = socket, explorer, workers, searches
        self._page = Page(explorer)
        self._state: Message | None = None
        self._settled: Message | None = None
        self._newest_settled: Message | None = None
        self._waiting, self._of_intervals = asyncio.Event(), asyncio.Lock()
        self._faults = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the page is closed."""
        await self._socket.accept()
        drawing = asyncio.create_task(self._draw())
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
            for task in (drawing, *self._tasks):
                task.cancel()

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
            await self._answer(message, lambda: self._pin(message))
        elif message.kind == "knob":
            knob = self._explorer.space.knobs[message.path]
            await self._send({"kind": "knob", "path": message.path, "html": knob_html(knob, removable=True)})
        else:
            self._beside(self._optimize(message))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes long while pictures go on."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _intervals(self, message: Message) -> None:
        """Intervals of one state at a time; of those that wait, the newest."""
        self._newest_settled = message
        async with self._of_intervals:
            if self._newest_settled is message:
                await self._answer(message, lambda: self._page.estimate(message), self._workers)
                await self._answer(message, self._page.intervals)

    def _pin(self, message: Message) -> dict[str, Any]:
        self._page.pin(message.pins)
        return {"kind": "pinned", "number": message.number}

    async def _draw(self) -> None:
        """Draw the newest state, and once the controls rest, its intervals."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            state, self._state = self._state, None
            if state is not None:
                await self._answer(state, lambda state=state: self._page.picture(state))
                await asyncio.sleep(0)
            settled = self._settled
            if settled is not None and self._state is None:
                self._settled = None
                self._beside(self._intervals(settled))

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
                improved = Improved(None, str(error), [], 0.0)
            return {"kind": "optimized", "number": message.number, **improved._asdict()}

        await self._answer(message, search, self._searches)

    async def _send(self, answer: Mapping[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # closed while it was computed
            await self._socket.send_text(json.dumps(answer, allow_nan=False, separators=(",", ":")))


def _refusal(request: str, number: int, reason: InputError | str) -> Mapping[str, Any]:
    part = {"path": reason.path} if isinstance(reason, RefusedPartError) else {}
    return {"kind": "error", "request": request, "number": number, **part, "message": str(reason)}
