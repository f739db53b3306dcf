"""From a mapping or a file to a store: read, translate, check, build, and tell what came of it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import attrs

from tieredkv import backends
from tieredkv.backends import Backend
from tieredkv.config import L1Config, choice
from tieredkv.errors import ConfigError
from tieredkv.loading.aliases import TYPES, Notes, foreign_names, house_names
from tieredkv.loading.environment import Expanded, expand
from tieredkv.loading.files import read_file
from tieredkv.loading.lmcache import is_single_process, read_single_process
from tieredkv.loading.schema import (
    Field,
    Given,
    construct,
    fields_of,
    given,
    refuse_unknown,
    spoken_type,
)

__all__ = ["Configuration", "Origin", "Setting", "load"]

_log: Final = logging.getLogger(__name__)

StoreT = TypeVar("StoreT")

Origin: TypeAlias = Literal["given", "default", "environment"]

_CLASSES: Final[Mapping[str, str]] = {
    "disk": "DiskBackend",
    "valkey": "ValkeyBackend",
    "hfbucket": "HFBucketBackend",
}
_HIDDEN: Final = "…"
_REFERENCES: Final = re.compile(r"(\$\{\w+\})+")
_USERINFO: Final = re.compile(r"(?<=://).*(?=@)", re.DOTALL)


@attrs.frozen
class Setting:
    """One effective setting.

    Attributes:
        path: Its place under our names: ``l2[0].capacity``.
        value: What holds; secrets are hidden, and ``${NAME}`` stands for a variable's contents.
        origin: Whether it was given, is the default, or comes from the environment alone.
        given_as: Where it was given, if that is another place than `path`; else empty.
        variables: Names of the environment variables in it.
        is_size: Whether it counts bytes.
    """

    path: str
    value: Any
    origin: Origin
    given_as: str = ""
    variables: tuple[str, ...] = ()
    is_size: bool = False


@attrs.frozen
class Configuration(Generic[StoreT]):
    """A configuration that works.

    Attributes:
        store: What was configured, not open yet.
        l1: Its first tier.
        backends: Its other tiers, in order, for those who want to look into one by itself: they are
            the store's, and open once.
        is_framed: Whether its values are stored in frames (``integrity="checksum"``).
        settings: Every setting of it.
        warnings: What is probably not meant.
        unused: Paths of settings that were given and have no effect.
    """

    store: StoreT
    l1: L1Config
    backends: tuple[Backend, ...]
    is_framed: bool
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    unused: tuple[str, ...]

    def log(self) -> None:
        """Log the warnings, and in one line what has no effect."""
        for warning in self.warnings:
            _log.warning("%s", warning)
        if self.unused:
            _log.info("settings without effect: %s", ", ".join(self.unused))


def load(
    source: Mapping[str, Any] | str | os.PathLike[str], store: Callable[..., StoreT]
) -> Configuration[StoreT]:
    """Make a store of a configuration; nothing is opened, and nothing asked over a network.

    Args:
        source: A mapping of plain data, or the path of a ``.json``, ``.toml`` or ``.yaml`` file.
        store: The class of the store; its keyword arguments may be configured, too.

    Raises:
        ConfigError: A setting is unknown, missing, malformed, or contradicts another one.
        MissingDependencyError: The file is YAML, and PyYAML is not installed.
    """
    data = source if isinstance(source, Mapping) else _read(source)
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"configuration must be a mapping of fields, not {spoken_type(data)}: "
            "{'l1': '4GiB', 'l2': [{'type': 'disk', ...}]}"
        )
    root = given(expand(data, os.environ), "")
    return _Loading(store).run(root)


def _read(source: object) -> object:
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"configuration must be a mapping or the path of a file, not {spoken_type(source)}"
        )
    return read_file(source)


class _Loading(Generic[StoreT]):
    """One configuration on its way."""

    def __init__(self, store: Callable[..., StoreT]) -> None:
        self._store = store
        self._fields = fields_of(store, without=("l1", "l2"))
        self._notes = Notes()
        self._settings: list[Setting] = []

    def run(self, root: dict[str, Given]) -> Configuration[StoreT]:
        if is_single_process(root):
            form = read_single_process(root, frozenset({"l1", *self._fields}), self._notes)
            rest, l1_found = form.rest, form.l1
            specs = form.l2
        else:
            refuse_unknown(root, {"l1", "l2", *self._fields})
            rest, l1_found = root, {}
            specs = _specs(root.pop("l2", None))
        l1 = self._l1(rest.pop("l1", None), l1_found)
        tiers: list[Backend] = []
        for kind, found, path in specs:
            tiers.append(self._backend(kind, found, path, f"l2[{len(tiers)}]", tiers))

        if not tiers:
            self._warn_of_useless(
                rest, ("write_policy", "max_pending", "fence_s", "negative_ttl_s"), "tiers in l2"
            )

        def compose(**settings: Any) -> StoreT:
            return self._store(l1, tiers, **settings)

        store = construct(compose, self._fields, rest, path="")
        for name, field in self._fields.items():
            self._tell(name, field, rest.get(name))
        integrity = rest.get("integrity")
        return Configuration(
            store,
            l1,
            tuple(tiers),
            integrity is None or integrity.value != "size",
            tuple(self._settings),
            tuple(self._notes.warnings),
            tuple(self._notes.unused),
        )

    def _l1(self, item: Given | None, found: dict[str, Given]) -> L1Config:
        if item is not None and item.value is not None:
            if isinstance(item.value, Mapping):
                found = given(item.value, item.path)
            else:
                found = {"capacity": item}
        elif not found:
            raise ConfigError("l1 is missing: give its capacity, such as '4GiB'")
        found = house_names("l1", found, self._notes)
        fields = fields_of(L1Config)
        refuse_unknown(found, {*fields, *foreign_names("l1")})
        l1 = construct(L1Config, fields, found, path="l1")
        if l1.eviction_policy == "noop":
            shares = ("trigger_watermark", "eviction_ratio")
            self._warn_of_useless(found, shares, "an eviction policy")
        for name, field in fields.items():
            self._tell(f"l1.{name}", field, found.get(name), getattr(l1, name))
        return l1

    def _backend(
        self, kind: str, found: dict[str, Given], path: str, house: str, before: list[Backend]
    ) -> Backend:
        cls = getattr(backends, _CLASSES[kind])
        fields = fields_of(cls)
        unknown = {name: item for name, item in found.items() if name not in foreign_names(kind)}
        refuse_unknown(unknown, {*fields, *foreign_names(kind)})
        found = house_names(kind, found, self._notes)
        if "name" not in found:
            taken = {backend.name for backend in before}
            names = (kind, *(f"{kind}-{number}" for number in range(2, len(taken) + 3)))
            free = next(name for name in names if name not in taken)
            if free != kind:
                found["name"] = Given(free, f"{path}.name")
        backend: Backend = construct(cls, fields, found, path=path)
        self._settings.append(Setting(f"{house}.type", kind, "given"))
        for name, field in fields.items():
            self._tell(f"{house}.{name}", field, found.get(name))
        if kind == "hfbucket":
            self._tell_token(found, house)
        self._warn(kind, found, path)
        return backend

    def _warn(self, kind: str, found: Mapping[str, Given], path: str) -> None:
        warn = self._notes.warnings.append
        if kind == "valkey" and {"capacity", "ttl_s"} <= found.keys():
            warn(
                f"{path}: {found['capacity'].name} and {found['ttl_s'].name} are two eviction "
                "authorities: what the server expires is still counted here; drop one"
            )
        if kind == "hfbucket" and "create_bucket" not in found:
            self._warn_of_useless(found, ("private",), "create_bucket")

    def _warn_of_useless(
        self, found: Mapping[str, Given], names: tuple[str, ...], without: str
    ) -> None:
        self._notes.warnings += [
            f"{found[name].path} has no effect without {without}" for name in names if name in found
        ]

    def _tell_token(self, found: Mapping[str, Given], house: str) -> None:
        """Say whose token it is that a bucket is opened with."""
        token = found.get("token")
        if token is not None and token.value is False:
            return
        item = found.get("token_env")
        variable = str(item.value) if item is not None and item.value else "HF_TOKEN"
        if os.environ.get(variable, "").strip():
            if token is not None and token.value:
                self._notes.warnings.append(
                    f"{token.path} is not used: the environment variable {variable} is set"
                )
            at = next(n for n, s in enumerate(self._settings) if s.path == f"{house}.token")
            self._settings[at] = Setting(
                f"{house}.token", _HIDDEN, "environment", variables=(variable,)
            )
        elif token is None or not token.value:
            self._notes.warnings.append(
                f"{house}: no token: the environment variable {variable} is not set, and opening "
                "will fail"
            )

    def _tell(self, path: str, field: Field, item: Given | None, effective: Any = None) -> None:
        if item is None or (item.value is None and type(None) not in field.arms):
            value = field.default if effective is None else effective
            value = None if field.is_required else value
            self._settings.append(Setting(path, value, "default", is_size=field.is_size))
            return
        given_as = "" if item.path == path else item.path
        value = _visible(path.rpartition(".")[2], item.value)
        self._settings.append(
            Setting(path, value, "given", given_as, tuple(item.variables), field.is_size)
        )


def _specs(item: Given | None) -> list[tuple[str, dict[str, Given], str]]:
    if item is None or item.value is None:
        return []
    listed = item.value if isinstance(item.value, list) else [item.value]
    if not isinstance(item.value, list | Mapping):
        raise ConfigError(f"l2 must be a list of mappings, not {spoken_type(item.value)}")
    specs = []
    for at, spec in enumerate(listed):
        path = f"l2[{at}]"
        found = given(spec, path)
        if "type" not in found:
            raise ConfigError(f"{path}.type is missing: it is one of {', '.join(_CLASSES)}")
        kind = found.pop("type")
        choice(kind.value, field=kind.path, choices=(*_CLASSES, *TYPES))
        specs.append((TYPES.get(kind.value, kind.value), found, path))
    return specs


def _visible(name: str, value: Any) -> Any:
    """Return what may be shown of a value: variables by name, secrets not at all."""
    if name in {"password", "token"} and value:
        is_reference = isinstance(value, Expanded) and _REFERENCES.fullmatch(value.raw)
        return value.raw if is_reference else _HIDDEN
    if isinstance(value, Mapping):
        return {key: _visible(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_visible(name, item) for item in value]
    text = value.raw if isinstance(value, Expanded) else value
    if isinstance(value, str) and not isinstance(value, Expanded):
        text = value.replace("${", "$${")  # as it is written
    if name == "address" and isinstance(text, str):
        return _USERINFO.sub(_hide_userinfo, text)
    return text


def _hide_userinfo(found: re.Match[str]) -> str:
    _, _, password = found.group().partition(":")
    return found.group() if _REFERENCES.fullmatch(password) else _HIDDEN
