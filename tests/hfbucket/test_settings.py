"""What a handle, a token and a name may be; nothing here asks a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tieredkv.backends import HFBucketBackend
from tieredkv.backends.hfbucket.handle import Handle, find_token
from tieredkv.errors import ConfigError
from tieredkv.keys import ObjectKey
from tieredkv.testing.strategies import wire_names

HANDLE = "hf://buckets/my-org/kv/prod"


@pytest.mark.parametrize(
    ("text", "bucket_id", "prefix"),
    [
        ("hf://buckets/my-org/lmcache-kv/prod", "my-org/lmcache-kv", "prod"),
        ("hf://buckets/my-org/lmcache-kv", "my-org/lmcache-kv", ""),
        ("  hf://buckets/a//b/c//d/  ", "a/b", "c/d"),
    ],
)
def test_a_handle_names_bucket_and_prefix(text: str, bucket_id: str, prefix: str) -> None:
    assert Handle.parse(text) == Handle(bucket_id, prefix)


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", None, 3, "my-org/kv", "hf://models/a/b", "hf://buckets/", "hf://buckets/a"),
        *("hf://buckets/a/b/..", "hf://buckets/a/b/.", "hf://buckets/a/b/c%2Fd"),
        *("hf://buckets/a/b/c d", "hf://buckets/a/b?x=1", "hf://buckets/a/b#c", "hf://buckets/é/b"),
    ],
)
def test_another_handle_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"hf://buckets/|segment"):
        Handle.parse(text)


def test_the_namespace_of_whoever_asks_is_refused() -> None:
    """The Hub creates a bucket there, and finds none under that name afterwards."""
    with pytest.raises(ConfigError) as raised:
        HFBucketBackend("hf://buckets/me/kv", create_bucket=True)
    assert str(raised.value) == (
        "handle='hf://buckets/me/kv' has the namespace 'me', which the Hub knows only where buckets"
        " are created and listed: give the name of your account or organisation"
    )
    assert Handle.parse("hf://buckets/my-org/me/me") == Handle("my-org/me", "me")


def test_paths_are_those_of_lmcache() -> None:
    key = ObjectKey("org/llama", 0xFF, b"\x00\x01\x02\x03", 0, "user-42")
    assert Handle("a/b", "prod").path_of(key.wire_name) == (
        "prod/org%2Fllama%40000000ff%400%4000010203%40user-42"
    )
    assert Handle("a/b", "").path_of("llama@000000ff@0@00") == "llama%40000000ff%400%4000"


@given(wire_names())
def test_a_path_stands_for_one_name(name: str) -> None:
    handle = Handle("a/b", "prod/1")
    path = handle.path_of(name)
    assert handle.name_of(path) == name
    assert path.removeprefix("prod/1/") not in {".", ".."}
    assert "/" not in path.removeprefix("prod/1/")


@pytest.mark.parametrize(
    "path", ["prod", "other/a", "prod/a/b", "prod/a b", "prod/%61", "prod/%ff"]
)
def test_paths_of_others_have_no_name(path: str) -> None:
    assert Handle("a/b", "prod").name_of(path) is None


@pytest.mark.parametrize(
    ("variable", "token", "found"),
    [
        ("hf_env", "hf_arg", "hf_env"),
        ("", "hf_arg", "hf_arg"),
        (None, "hf_arg", "hf_arg"),
        (" hf_env\n", None, "hf_env"),
        ("hf_env", False, None),
    ],
)
def test_the_variable_comes_before_the_argument(
    variable: str | None, token: Any, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_another_tenant")
    monkeypatch.delenv("HF_EU_TOKEN", raising=False)
    if variable is not None:
        monkeypatch.setenv("HF_EU_TOKEN", variable)
    assert find_token(token, "HF_EU_TOKEN") == found


@pytest.mark.anyio
async def test_no_token_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_another_tenant")
    backend = HFBucketBackend(HANDLE, token_env="HF_EU_TOKEN", name="cold")
    with pytest.raises(ConfigError, match=r"^cold: no token: .* HF_EU_TOKEN"):
        await backend.open()
    await backend.aclose()


@pytest.mark.parametrize(
    "settings",
    [
        *({"create_bucket": "false"}, {"private": 1}, {"num_workers": 0}, {"num_workers": True}),
        *({"transfer_workers": 0}, {"metadata_ttl_s": -1}, {"metadata_ttl_s": float("nan")}),
        *({"metadata_ttl_s": True}, {"capacity": "4G"}, {"capacity": 0}, {"compression": "zip"}),
        *({"token": 5}, {"token_env": ""}, {"name": ""}, {"endpoint": "hub"}, {"endpoint": 5}),
        *({"endpoint": "https://me:secret@hub"}, {"request_timeout_s": 0}),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        HFBucketBackend(HANDLE, **settings)
    assert "secret" not in str(raised.value)


def test_a_prefix_makes_the_space_its_own() -> None:
    assert HFBucketBackend(HANDLE).has_own_space
    assert not HFBucketBackend("hf://buckets/my-org/kv").has_own_space


def test_the_token_is_not_shown() -> None:
    backend = HFBucketBackend(HANDLE, token="hf_secret")
    assert "hf_secret" not in repr(backend) + str(backend)
