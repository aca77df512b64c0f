"""Guard of the page: only a browser on this machine that knows the token gets in, and no page from elsewhere."""

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from energymodel.readers.expressions import data_file

NAMES = ("127.0.0.1", "localhost")
HEADERS = data_file(__file__, "headers.toml")
_REFUSED = 4403
_WORDS = {403: "Forbidden: open the address that energymodel explore printed.", 404: "Not found."}


def new_token() -> str:
    """A token that nobody can guess, for the address of the page."""
    return secrets.token_urlsafe(32)


class Guard:
    """Refuses requests without the token, with another host (DNS rebinding) or from another origin.

    The first part of the path is the token; what is behind it is the path that the application sees.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = frozenset(f"{name}:{port}" for name in NAMES)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the headers that close the page off, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif (fault := self._fault(scope)) is None:

            async def send_with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message).update(HEADERS)
                await send(message)

            path = "/" + scope["path"].split("/", 2)[2]
            await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": _REFUSED, "reason": ""})
        else:
            await PlainTextResponse(_WORDS[fault], fault, HEADERS)(scope, receive, send)

    def _fault(self, scope: Scope) -> int | None:
        """The status with which a request is refused, if it is."""
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        needed = scope["type"] == "websocket" or scope.get("method") not in ("GET", "HEAD")
        if not _only(headers.getlist("host"), self._hosts):
            return 403
        if (needed or origins) and not _only(origins, self._origins):
            return 403
        parts = scope["path"].split("/", 2)
        token = parts[1].encode(errors="replace") if len(parts) == 3 else b""
        return None if secrets.compare_digest(token, self._token) else 404


def _only(values: list[str], allowed: Iterable[str]) -> bool:
    return len(values) == 1 and values[0].lower() in allowed
