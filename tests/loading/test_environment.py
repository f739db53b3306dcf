"""``${NAME}`` in a configuration, and that no secret is ever shown."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from tests.loading.effective import effective, loaded
from tieredkv import TieredStore
from tieredkv.errors import ConfigError
from tieredkv.loading import load

SECRET = "hunter2-no-one-may-see-this"
DISK = {"type": "disk", "path": "/kv"}
VALKEY = {"type": "valkey", "address": "valkey://h"}
BUCKET = {"type": "hfbucket", "handle": "hf://buckets/o/b"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECRET": SECRET, "DIR": "/fast", "MANY": "12", "HF_TOKEN": ""}.items():
        monkeypatch.setenv(name, value)


def disk(**settings: Any) -> Any:
    (backend,) = loaded({**DISK, **settings}).store._backends
    return backend


def test_a_variable_stands_for_what_it_holds() -> None:
    assert str(disk(path="${DIR}/kv-${MANY}").path) == "/fast/kv-12"


def test_two_dollars_stand_for_the_characters() -> None:
    assert str(disk(path="/kv/$${DIR}/$DIR/$$").path) == "/kv/${DIR}/$DIR/$$"


def test_what_a_variable_holds_is_not_expanded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIR", "/${MANY}")
    assert str(disk(path="${DIR}").path) == "/${MANY}"


def test_numbers_and_sizes_may_come_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk(capacity="${MANY}MiB").capacity_bytes == 12 * 1024**2
    told = loaded({**DISK, "num_workers": "${MANY}"}).store._backends[0]
    assert told._workers.num_workers == 12  # type: ignore[attr-defined]
    monkeypatch.setenv("SHARE", "0.5")
    store = load({"l1": {"capacity": "4MiB", "trigger_watermark": "${SHARE}"}}, TieredStore).store
    assert store._config.trigger_watermark == 0.5


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("true", True), (" Yes ", True), ("1", True), ("false", False), ("OFF", False), ("0", False)],
)
def test_words_for_true_and_false_are_taken_from_a_variable(
    word: str, meaning: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", word)
    assert loaded(fail_open="${WORD}").store._fail_open is meaning


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "${NO_SUCH}"}, "l2[0].path: the environment variable NO_SUCH is not set: set it"),
        ({"path": "${}"}, "l2[0].path has a '${' without the name of a variable"),
        ({"path": "${DIR"}, "l2[0].path has a '${' without the name of a variable"),
        ({"path": "${a b}"}, "l2[0].path has a '${' without the name of a variable"),
        ({"num_workers": "${SECRET}"}, "l2[0].num_workers='${SECRET}' must be a whole number"),
        ({"capacity": "${SECRET}"}, "l2[0].capacity='${SECRET}' is not a size"),
        ({"capacity": "x${SECRET}y"}, "l2[0].capacity='x${SECRET}y' is not a size"),
        ({"durability": "${SECRET}"}, "l2[0].durability='${SECRET}' must be one of"),
    ],
)
def test_a_mistake_is_told_with_the_variables_name(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded({**DISK, **settings})
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "spec",
    [
        {**VALKEY, "password": SECRET},
        {**VALKEY, "user": "u", "password": "${SECRET}"},
        {**VALKEY, "address": f"valkey://u:{SECRET}@h"},
        {**VALKEY, "address": "valkey://u:${SECRET}@h"},
        {**VALKEY, "address": [f"valkey://:{SECRET}@${{DIR}}"]},
        {"type": "valkey", "startup_nodes": "h:1", "password": SECRET},
        {**BUCKET, "token": SECRET},
        {**BUCKET, "token": "${SECRET}", "token_env": "SECRET"},
    ],
)
def test_no_secret_is_shown_of_what_works(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    if "${DIR}" in str(spec):
        spec = {**spec, "address": [text.replace("${DIR}", "h") for text in spec["address"]]}
    with caplog.at_level(logging.DEBUG):
        configuration = loaded(spec)
        configuration.log()
        TieredStore.from_config({"l1": "4MiB", "l2": [spec]})
    shown = [repr(configuration), repr(configuration.store._backends), caplog.text]
    assert SECRET not in "".join(shown)
    assert SECRET.encode() not in pickle.dumps(configuration.settings)


@pytest.mark.parametrize(
    "spec",
    [
        {**VALKEY, "password": [SECRET]},
        {**VALKEY, "password": {"password": SECRET}},
        {**VALKEY, "pasword": SECRET},
        {**VALKEY, "password": SECRET, "num_workers": 0},
        {**VALKEY, "address": f"valkey://u:{SECRET}@h:99999"},
        {**VALKEY, "address": f"redis://u:{SECRET}@h"},
        {**VALKEY, "address": "valkey://u:${SECRET}@h:x"},
        {**VALKEY, "address": {"password": SECRET}},
        {**VALKEY, "key_prefix": "@${SECRET}"},
        {**VALKEY, "db": [SECRET]},
        {"type": "valkey", "startup_nodes": f"u:{SECRET}@h:1"},
        {"type": "valkey", "startup_nodes": [SECRET]},
        {"type": "disk", "path": "/kv", "name": {"password": SECRET}},
        {**BUCKET, "token": [SECRET]},
        {**BUCKET, "token": SECRET, "handle": "x"},
        {**BUCKET, "endpoint": f"https://u:{SECRET}@hub"},
        {**BUCKET, "private": "${SECRET}"},
    ],
)
def test_no_secret_is_shown_of_what_does_not(spec: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(spec)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("secret", ["a\\b'c\"d", "line\nbreak", "täglich\x00"])
def test_a_secret_is_not_shown_in_another_spelling(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"ODD": secret})
    with pytest.raises(ConfigError) as refused:
        loaded({**DISK, "capacity": "1${ODD}"})
    assert str(refused.value).startswith("l2[0].capacity='1${ODD}' is not a size")
    with pytest.raises(ConfigError) as refused:
        load({"l1": "${ODD}"}, TieredStore)
    assert str(refused.value).startswith("l1: capacity='${ODD}' is not a size")


def test_a_secret_that_is_a_variable_is_shown_by_name() -> None:
    configuration = loaded({**VALKEY, "user": "u", "password": "${SECRET}"})
    (password,) = [s for s in configuration.settings if s.path == "l2[0].password"]
    assert (password.value, password.variables) == ("${SECRET}", ("SECRET",))


def test_a_token_of_the_environment_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    configuration = loaded(BUCKET)
    (token,) = [s for s in configuration.settings if s.path == "l2[0].token"]
    assert (token.value, token.origin, token.variables) == ("…", "environment", ("HF_TOKEN",))


def test_a_token_that_the_environment_overrides_is_a_warning() -> None:
    (warning,) = loaded({**BUCKET, "token": "t", "token_env": "SECRET"}).warnings
    assert warning == "l2[0].token is not used: the environment variable SECRET is set"


def test_no_token_at_all_is_a_warning() -> None:
    (warning,) = loaded(BUCKET).warnings
    assert warning.startswith("l2[0]: no token: the environment variable HF_TOKEN is not set")
    assert loaded({**BUCKET, "token": False}).warnings == ()


def test_a_configuration_has_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load({"l1": endless}, TieredStore)
    wide: list[Any] = [0] * 20
    for _ in range(8):
        wide = [wide] * 20
    with pytest.raises(ConfigError, match="too large"):
        load({"l1": wide}, TieredStore)


def test_settings_are_told_without_what_a_variable_holds() -> None:
    told = effective(loaded({**DISK, "path": "${DIR}/kv"}))
    assert told["l2[0].path"] == "${DIR}/kv"
