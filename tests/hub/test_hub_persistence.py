"""What a Hub keeps, where, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi

from tieredkv.errors import ConfigError
from tieredkv.testing import hub
from tieredkv.testing.hub.__main__ import main

pytestmark = pytest.mark.network

BUCKET = "local/kv"
Client = Callable[..., HfApi]
Ask = Callable[..., Any]


def download(api: HfApi, target: Path, name: str) -> bytes:
    api.download_bucket_files(BUCKET, [(name, target)])
    return target.read_bytes()


@pytest.mark.parametrize("cas", ["http", "local"])
def test_a_root_outlives_its_hub(tmp_path: Path, client: Client, cas: hub.CasKind) -> None:
    value = os.urandom(5000)
    with hub.start(tmp_path / "hub", cas=cas) as server:
        api = client(server)
        for bucket_id in (BUCKET, "local/gone", "local/before"):
            api.create_bucket(bucket_id)
        api.batch_bucket_files(BUCKET, add=[(value, "ü key"), (b"", "empty"), (b"", "gone")])
        api.batch_bucket_files(BUCKET, delete=["gone"])
        api.delete_bucket("local/gone")
        server.call("set_private", bucket_id=BUCKET, is_private=True)
        before = list(api.list_bucket_tree(BUCKET)), api.bucket_info(BUCKET)
    for _ in range(2):
        with hub.start(tmp_path / "hub", cas=cas) as server:
            api = client(server)
            assert (list(api.list_bucket_tree(BUCKET)), api.bucket_info(BUCKET)) == before
            assert {b.id for b in api.list_buckets()} == {BUCKET, "local/before"}
            assert download(api, tmp_path / "value", "ü key") == value


def test_a_killed_hub_loses_nothing_that_it_has_answered(tmp_path: Path, client: Client) -> None:
    value = os.urandom(5000)
    server = hub.start(tmp_path / "hub", process=True)
    assert isinstance(server, hub.ProcessHub)
    api = client(server)
    api.create_bucket(BUCKET)
    api.batch_bucket_files(BUCKET, add=[(value, "key")])
    server.kill()
    with pytest.raises(RuntimeError, match="does not run"):
        server.clear_log()
    server.stop()
    port = int(server.endpoint.rpartition(":")[2])
    with hub.start(tmp_path / "hub", port=port, token=server.token) as again:
        assert again.endpoint == server.endpoint
        assert download(api, tmp_path / "value", "key") == value


def test_ctrl_c_at_a_terminal_does_not_reach_the_process_of_a_hub(tmp_path: Path) -> None:
    """Not even while it starts: it is not of the group that the terminal sends signals to."""
    with hub.start(tmp_path, process=True) as server:
        assert isinstance(server, hub.ProcessHub)
        assert os.getpgid(server.pid) == server.pid


def test_a_change_that_was_not_written_whole_has_not_happened(tmp_path: Path, ask: Ask) -> None:
    with hub.start(tmp_path) as server:
        ask(server, "POST", f"/api/buckets/{BUCKET}", {})
    with (tmp_path / "buckets.ndjson").open("ab") as journal:
        journal.write(b'{"do":"delete","bucket":"local')
    with hub.start(tmp_path) as server:
        assert ask(server, "GET", f"/api/buckets/{BUCKET}").status == 200
        assert ask(server, "DELETE", f"/api/buckets/{BUCKET}").status == 200
    with hub.start(tmp_path) as server:
        assert ask(server, "GET", f"/api/buckets/{BUCKET}").status == 404


def test_what_is_refused_is_not_kept(tmp_path: Path, ask: Ask) -> None:
    with hub.start(tmp_path) as server, pytest.raises(LookupError):
        server.set_private(BUCKET, is_private=True)
    with hub.start(tmp_path) as server:
        assert ask(server, "GET", f"/api/buckets/{BUCKET}").status == 404


@pytest.mark.parametrize("process", [False, True])
def test_a_temporary_root_goes_with_its_hub(*, process: bool) -> None:
    server = hub.start(process=process)
    root = server.settings.root
    assert root.is_dir()
    server.stop()
    server.stop()
    assert not root.exists()
    if isinstance(server, hub.ProcessHub):
        with pytest.raises(ProcessLookupError):
            os.kill(server.pid, 0)


@pytest.mark.parametrize("process", [False, True])
def test_commands(ask: Ask, *, process: bool) -> None:
    with hub.start(process=process) as server:
        with pytest.raises(ValueError, match="no command 'dance'"):
            server.call("dance")
        with pytest.raises(LookupError):
            server.harmed(0)
        server.inject(hub.Fault(headers={"X": "y"}, times=1))
        assert ask(server, "GET", "/api/whoami-v2").headers["x"] == "y"
        server.wait_for_request("GET", "whoami")
        assert [entry["fault"] for entry in server.log] == [0]
        old = server.token
        assert ask(server, "GET", "/api/whoami-v2", token=server.rotate_token()).status == 200
        assert ask(server, "GET", "/api/whoami-v2", token=old).status == 401


def test_it_listens_on_the_loopback_interface_only(server: hub.LocalHub) -> None:
    assert server.endpoint.startswith("http://127.0.0.1:")
    assert server.settings.token not in repr(server.settings)


@pytest.mark.parametrize(
    "setting", [{"cas": "ftp"}, {"port": -1}, {"page_size": 0}, {"xet_token_ttl_s": True}]
)
def test_settings_that_cannot_be(tmp_path: Path, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        hub.start(tmp_path, **setting)


def test_a_port_that_is_taken(server: hub.LocalHub, tmp_path: Path) -> None:
    port = int(server.endpoint.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        hub.start(tmp_path, port=port)


def test_a_root_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "buckets.ndjson").mkdir()
    with pytest.raises(IsADirectoryError):
        hub.start(tmp_path)


def test_a_journal_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "buckets.ndjson").write_text("nothing of ours\n")
    with pytest.raises(ValueError, match="Expecting value"):
        hub.start(tmp_path)
    with pytest.raises(RuntimeError, match="does not run"):
        hub.start(tmp_path, process=True)


def test_the_command_line_says_what_is_wrong(
    server: hub.LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(SystemExit) as caught:
        main(["--port", server.endpoint.rpartition(":")[2]])
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert caught.value.code == 1
    assert "in use" in capsys.readouterr().err


def test_the_command_line(ask: Ask, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tieredkv.testing.hub", "--root", str(tmp_path / "hub")]
    root = Path(hub.__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        endpoint, token = (child.stdout.readline().strip().partition("=")[2] for _ in range(2))
        assert (
            ask(SimpleNamespace(endpoint=endpoint, token=token), "GET", "/api/whoami-v2").status
            == 200
        )
        child.send_signal(signal.SIGTERM)
    assert child.returncode == 0
    assert (tmp_path / "hub" / "buckets.ndjson").exists()
