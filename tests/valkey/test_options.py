"""Addresses and options: what is taken, and how a wrong one is refused."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tieredkv.backends import TLS, ValkeyBackend
from tieredkv.backends.valkey.addresses import parse_addresses
from tieredkv.clients.glide import Node
from tieredkv.errors import ConfigError

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "node", "tls", "db"),
    [
        ("valkey://host:7000", Node("host", 7000), False, None),
        ("valkey://host", Node("host", 6379), False, None),
        ("valkey://host/", Node("host", 6379), False, None),
        ("valkeys://Host.example:7000/3", Node("Host.example", 7000), True, 3),
        ("valkey://[::1]:7000", Node("::1", 7000), False, None),
        ("valkey://[fe80::1%25eth0]", Node("fe80::1%25eth0", 6379), False, None),
        ("unix:///run/valkey.sock", Node("/run/valkey.sock", 0), False, None),
    ],
)
def test_an_address_says_where_and_how(text: str, node: Node, tls: bool, db: int | None) -> None:  # noqa: FBT001
    (address,) = parse_addresses(text)
    assert (address.node, address.tls, address.db) == (node, tls, db)


def test_user_and_password_are_unquoted_and_never_shown() -> None:
    (address,) = parse_addresses(f"valkey://us%40er:{SECRET}%2F@host")
    assert (address.user, address.password) == ("us@er", f"{SECRET}/")
    backend = ValkeyBackend(f"valkey://user:{SECRET}@host")
    for shown in (address, backend, backend._settings):
        assert SECRET not in repr(shown)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "",
            "host:6379",
            "http://host",
            "redis://host",
            "rediss://host",
            "valkey:///",
            "valkey://",
        ),
        *("valkey://:6379", "valkey://host:0", "valkey://host:65536", "valkey://host:-1"),
        *("valkey://host:x", "valkey://::1:6379", "valkey://[::1", "valkey://a:1,b:2"),
        *("valkey://host/x", "valkey://host/-1", "valkey://host/0/1", "valkey://host?db=1"),
        *("valkey://ho st", "valkey://host\n", "unix://run/v.sock", "unix:///", "unix:v.sock"),
        *([], ["valkey://a", "valkeys://b"], ["valkey://a/1", "valkey://b"], [7], 7, None, b"x"),
    ],
)
def test_a_bad_address_is_refused_in_words(address: Any) -> None:
    with pytest.raises(ConfigError, match="address"):
        ValkeyBackend(address)


@pytest.mark.parametrize(
    "address",
    [
        f"valkey://user:{SECRET}@host:99999",
        f"redis://user:{SECRET}@host",
        f"user:{SECRET}@host:6379",
        f"valkey://user:{SECRET}@host/x",
        f"valkey://user:{SECRET}/@host:1:2",
    ],
)
def test_a_refusal_never_shows_the_password(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ValkeyBackend(address)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("mode", ["Cluster", True, None]),
        ("read_from", ["replica", None]),
        ("num_workers", [0, -1, True, 2.0, "8"]),
        ("db", [-1, True, "0"]),
        ("request_timeout_s", [0, -1, True, float("nan"), float("inf"), "5"]),
        ("connect_timeout_s", [0, None]),
        ("ttl_s", [0, -1, True, "60"]),
        ("capacity", [0, -1, True, "4G", 1.5]),
        ("key_prefix", ["a@b", "{a}", "a\n", "\ud800", None, 7]),
        ("client_name", ["two words", "", 7]),
        ("client_tag", ["a(b)", "two words"]),
        ("password", [7, b"bytes"]),
        ("tls", [True, "yes"]),
        ("name", ["", None]),
    ],
)
def test_an_option_out_of_range_is_refused_by_its_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=re.escape(field)):
            ValkeyBackend("valkeys://host", **{field: value})


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="password"):
        ValkeyBackend("valkey://host", user="user")
    with pytest.raises(ConfigError, match="given twice"):
        ValkeyBackend("valkey://user:one@host", password="two")
    with pytest.raises(ConfigError, match="db is given twice"):
        ValkeyBackend("valkey://host/1", db=2)
    with pytest.raises(ConfigError, match="valkeys://"):
        ValkeyBackend("valkey://host", tls=TLS())
    with pytest.raises(ConfigError, match="ports"):
        ValkeyBackend("unix:///run/v.sock", mode="cluster")
    with pytest.raises(ConfigError, match="go together"):
        TLS(cert="client.pem")
    with pytest.raises(ConfigError, match="insecure"):
        TLS(ca=Path("ca.pem"), insecure=True)


def test_null_and_empty_credentials_are_none() -> None:
    settings = ValkeyBackend("valkey://host", user="", password="")._settings
    assert (settings.user, settings.password) == (None, None)


def test_what_has_no_effect_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ValkeyBackend(["valkey://a", "valkey://b"])
        ValkeyBackend("valkey://a", mode="cluster", db=3)
    assert "uses the first of 2" in caplog.text
    assert "db=3 has no meaning" in caplog.text


def test_a_timeout_is_never_rounded_to_nothing() -> None:
    settings = ValkeyBackend("valkey://host", request_timeout_s=0.0001)._settings
    assert settings.request_timeout_ms == 1


def test_the_package_is_imported_only_to_open() -> None:
    program = (
        "import sys\nfrom tieredkv.backends import ValkeyBackend\n"
        "ValkeyBackend('valkey://host')\nassert 'glide_sync' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
