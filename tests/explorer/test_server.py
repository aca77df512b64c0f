import io
import json
import logging
import re
import socket
from http.client import HTTPConnection, HTTPResponse

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from energymodel.errors import InputError
from energymodel.explorer.fragments import STATIC
from energymodel.explorer.guard import new_token
from energymodel.explorer.messages import LONGEST
from energymodel.explorer.server import ADDRESS, ExplorerServer
from explorer_page import small_explorer

GRACE = 30.0  # s for an answer


@pytest.fixture(scope="module")
def server():
    with ExplorerServer(small_explorer(), warm=False) as running:
        yield running


def answer_to(server, path, method="GET", body=None, **headers) -> tuple[HTTPResponse, str]:
    """The answer to a request whose path is sent as it is."""
    connection = HTTPConnection(ADDRESS, server.port, timeout=GRACE)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    headers_sent = {"Host": f"{ADDRESS}:{server.port}", **headers}
    if body is not None:
        headers_sent["Content-Length"] = str(len(body))
    for name, value in headers_sent.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def token(server):
    return server.address.rsplit("/", 2)[1]


def origin(server):
    return f"http://{ADDRESS}:{server.port}"


def test_page_is_complete(server):
    answer, text = answer_to(server, f"/{token(server)}/")
    assert answer.status == 200
    assert "<!--" not in text
    assert 'data-path="plan.clock"' in text
    for name, kind in STATIC.items():
        response, content = answer_to(server, f"/{token(server)}/static/{name}")
        assert response.status == 200
        assert (response.getheader("Content-Type") or "").startswith(kind)
        assert content.strip()


def test_page_has_no_script_and_no_style_of_its_own(server):
    _, text = answer_to(server, f"/{token(server)}/")
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:", text)
    assert re.findall(r"<script.*?</script>", text) == ['<script type="module" src="static/main.js"></script>']


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/{token}", "/{token}x/", "//", "/x{token}/", "/static", "/{token}/../"]
)
def test_without_the_token_there_is_nothing(server, path):
    assert answer_to(server, path.format(token=token(server)))[0].status == 404


@pytest.mark.parametrize(
    "path",
    [
        "static/../page.html",
        "static/..%2f..%2f..%2fpyproject.toml",
        "static/%2e%2e/%2e%2e/explorer.py",
        "static/%2e%2e%2fpage.py",
        "static//usr/bin/env",
        "static/page.html",
        "static/",
        "../",
        "../../etc/passwd",
        "..%2f",
    ],
)
def test_only_the_known_files_are_served(server, path):
    assert answer_to(server, f"/{token(server)}/{path}")[0].status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"])
def test_another_host_is_refused(server, host):
    answer, _ = answer_to(server, f"/{token(server)}/", Host=host.format(port=server.port))
    assert answer.status == 403


@pytest.mark.parametrize("other", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_another_origin_is_refused(server, other):
    other = other.format(port=server.port)
    assert answer_to(server, f"/{token(server)}/", Origin=other)[0].status == 403
    saved = answer_to(server, f"/{token(server)}/scenario.toml", "POST", b"{}", Origin=other)
    assert saved[0].status == 403
    with pytest.raises(InvalidStatus), live_page(server, origin_=other):
        pass


def test_what_changes_or_streams_needs_an_origin_and_the_token(server):
    assert answer_to(server, f"/{token(server)}/scenario.toml", "POST", b"{}")[0].status == 403
    with pytest.raises(InvalidStatus), live_page(server, origin_=None):
        pass
    with pytest.raises(InvalidStatus), live_page(server, token_="wrong"):
        pass


def test_headers_close_the_page_off(server):
    for path in (f"/{token(server)}/", f"/{token(server)}/static/main.js", "/", f"/{token(server)}/nothing"):
        answer, _ = answer_to(server, path)
        headers_sent = answer.getheader("Content-Security-Policy") or ""
        policy = dict(part.strip().split(" ", 1) for part in headers_sent.split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers_sent
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Cache-Control") == "no-store"


def test_tokens_are_long_and_differ():
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 40  # 32 bytes in base64


def live_page(server, origin_: str | None = "own", token_=None):
    address = f"ws://{ADDRESS}:{server.port}/{token_ or token(server)}/live"
    headers_sent = origin(server) if origin_ == "own" else origin_
    headers = {} if headers_sent is None else {"Origin": headers_sent}
    return connect(address, additional_headers=headers, max_size=None, open_timeout=GRACE)


@pytest.fixture
def live(server):
    with live_page(server) as channel:
        yield channel


def ask(live, content):
    live.send(content if isinstance(content, str) else json.dumps(content))
    return json.loads(live.recv(timeout=GRACE))


def test_state_gives_a_picture(live):
    answer = ask(live, {"kind": "state", "number": 7, "values": {"plan.clock": 0.8}})
    assert answer["kind"] == "picture"
    assert answer["number"] == 7
    assert "<svg" in answer["parts"]["energy"]
    assert answer["values"]["plan.clock"] == 0.8


def test_bad_messages_get_one_sentence_and_the_page_goes_on(live):
    for content in ("{", '{"kind": "state", "values": {"plan.clock": 1e9}}'):
        assert ask(live, content)["kind"] == "error"
    assert ask(live, {"kind": "state", "number": 2})["kind"] == "picture"


def test_impossible_plan_is_an_error_of_its_number(live):
    knob = small_explorer().space.knobs["system.accelerator.leakage.power"]
    answer = ask(live, {"kind": "state", "number": 5, "values": {knob.path: knob.high}})
    assert answer["kind"] == "error"
    assert answer["number"] == 5
    assert "switching" in answer["message"]


@pytest.mark.parametrize("size", [LONGEST + 1, 10 * LONGEST])
def test_huge_message_ends_the_connection(live, size):
    live.send(" " * size)
    with pytest.raises(ConnectionClosed) as caught:
        live.recv(timeout=GRACE)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009  # too big


def test_another_number_gets_a_control(live):
    answer = ask(live, {"kind": "knob", "path": "system.accelerator.memory_capacity"})
    assert 'data-path="system.accelerator.memory_capacity"' in answer["html"]
    assert 'type="range"' in answer["html"]


def test_scenario_is_saved_with_a_plain_name(server):
    def post(body):
        return answer_to(server, f"/{token(server)}/scenario.toml", "POST", body, Origin=origin(server))

    answer, text = post(json.dumps({"kind": "state", "values": {"plan.clock": 0.8}}).encode())
    assert answer.status == 200
    assert "clock = { value = 0.8" in text
    assert answer.getheader("Content-Disposition") == 'attachment; filename="test-1b-h100-explored.toml"'
    report, page = answer_to(
        server,
        f"/{token(server)}/report.html",
        "POST",
        json.dumps({"kind": "state", "values": {"plan.clock": 0.8}}).encode(),
        Origin=origin(server),
    )
    assert report.status == 200
    assert page.startswith("<!doctype html>")
    assert "energymodel evaluate test-1b-h100-explored.toml" in page
    wrong, sentence = post(b"{}")
    assert wrong.status == 400
    assert "not a request" in sentence
    assert post(b" " * (3 * LONGEST))[0].status == 400


def test_port_that_is_taken_is_named(server):
    with socket.create_connection((ADDRESS, server.port), timeout=GRACE):
        pass
    with pytest.raises(InputError, match=f"--port {server.port}: .* Choose another one"):
        ExplorerServer(small_explorer(), server.port, warm=False)


class _ClosesItsStream(logging.StreamHandler):
    """As the handler of absl does."""

    def close(self):
        self.stream.close()
        super().close()


def test_logging_of_the_process_is_left_alone():
    stream = io.StringIO()
    handler = _ClosesItsStream(stream)
    ExplorerServer(small_explorer(), warm=False)._socket.close()
    assert not stream.closed
    handler.close()
