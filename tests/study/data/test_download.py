"""Downloads from a server on this machine: whole, corrupt, broken off, refused."""

import functools
import gc
import hashlib
import http.server
import socket
import subprocess
import sys
import threading

import pytest

from qneurons.study.data.download import download
from qneurons.study.errors import StudyError

pooch = pytest.importorskip("pooch")
# Where a download fails, pooch leaves the connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
CONTENT = bytes(range(256)) * 1000


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/short":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
        else:
            super().do_GET()

    def log_message(self, *arguments):
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "file").write_bytes(CONTENT)
    handler = functools.partial(Handler, directory=tmp_path / "www")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _quiet():
    level = pooch.get_logger().level
    yield
    pooch.get_logger().setLevel(level)
    gc.collect()


def md5(content):
    return f"md5:{hashlib.md5(content).hexdigest()}"


def expect(message, checksums, folder):
    with pytest.raises(StudyError) as error:
        download(checksums, folder, progress=False, remedy="do this instead")
    (url,) = checksums
    for part in (f"{url} to {folder}: ", message, "do this instead"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    if folder.is_dir():
        assert list(folder.iterdir()) == []


def test_a_file_arrives_whole_and_once(server, tmp_path, capsys):
    checksums = {f"{server.url}/file": md5(CONTENT)}
    for _ in range(2):
        download(checksums, tmp_path / "new" / "folder", progress=False, remedy="")
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert capsys.readouterr() == ("", "")


def test_progress_is_drawn_on_stderr(server, tmp_path, capsys):
    download({f"{server.url}/file": md5(CONTENT)}, tmp_path, progress=True, remedy="")
    out, err = capsys.readouterr()
    assert out == ""
    assert "file" in err
    assert "256.0/256.0 kB" in err


def test_corrupt(server, tmp_path):
    expect("does not match the known hash", {f"{server.url}/file": md5(b"other")}, tmp_path / "to")


def test_broken_off(server, tmp_path):
    expect("", {f"{server.url}/short": md5(CONTENT)}, tmp_path / "to")


def test_not_there(server, tmp_path):
    expect("404 Client Error", {f"{server.url}/none": md5(CONTENT)}, tmp_path / "to")


def test_no_connection(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    expect("Connection refused", {f"http://127.0.0.1:{port}/file": md5(b"")}, tmp_path / "to")
    with pytest.raises(StudyError):
        download({f"http://127.0.0.1:{port}/file": md5(b"")}, tmp_path, progress=True, remedy="")
    assert "file" not in capsys.readouterr().err  # no empty bar before the message


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "to").write_text("a file")
    expect("Not a directory", {f"{server.url}/file": md5(CONTENT)}, tmp_path / "to" / "deeper")


def test_optional_packages_are_imported_only_where_they_are_used():
    script = (
        "import sys, qneurons.study.data, qneurons.study.spec, qneurons.study.store; "
        "print({'pooch', 'requests', 'rich', 'sklearn', 'polars'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_without_pooch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(StudyError, match=r"needs pooch; pip install 'qneurons\[study\]', or do"):
        download({"http://127.0.0.1/file": ""}, tmp_path, progress=False, remedy="do that")
