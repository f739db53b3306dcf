"""Keys and their wire names.

Every tier indexes values by *wire name*, a plain ``str``. There are two kinds of key and their wire
names never meet: an `ObjectKey`'s always holds ``@``, a plain string's never does.
"""

from __future__ import annotations

import enum
import re
from typing import Final, Literal, TypeAlias

import attrs

from tieredkv.errors import KeyFormatError

__all__ = ["ALL", "MAX_STR_KEY_BYTES", "MAX_WIRE_NAME_BYTES", "Key", "ObjectKey", "Tenant"]

MAX_STR_KEY_BYTES: Final = 512
"""Longest `str` key, in bytes of UTF-8 before escaping."""

MAX_WIRE_NAME_BYTES: Final = 3 * MAX_STR_KEY_BYTES
"""Longest wire name of either kind, in bytes of UTF-8 (a `str` key whose every byte is escaped)."""

MAX_SALT_CHARS: Final = 128
MAX_RANK: Final = 2**32 - 1
MAX_PACKED_FIELD: Final = 255

_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"  # exactly the Unicode category Cc
_SURROGATES: Final = r"\ud800-\udfff"
# Without surrogates: a class that goes beyond Latin-1 takes ten times as long to compile.
_UNFIT_IN_MODEL: Final = re.compile(f"[@{{}}{_CONTROLS}]")
_UNFIT_IN_SALT: Final = re.compile(rf"[@{{}}/\\{_CONTROLS}]")
_ESCAPED_IN_STR: Final = re.compile(f"[%@{{}}{_CONTROLS}]")
_find_escaped: Final = _ESCAPED_IN_STR.search
_SURROGATE: Final = re.compile(f"[{_SURROGATES}]")
_PERCENT_BYTE: Final = re.compile(r"((?:%[0-9A-F]{2})+)")
_WIRE_FORM: Final = re.compile(
    r"(?P<model>[^@]+)@(?P<rank>[0-9a-f]{8})@(?P<group>0|[1-9a-f][0-9a-f]*)"
    r"@(?P<hash>(?:[0-9a-f]{2})+)(?:@(?P<salt>[^@]+))?"
)


@attrs.frozen
class ObjectKey:
    r"""Key of one KV-cache chunk, as serving engines name it.

    The wire name is ``<model>@<kv_rank:08x>@<group:x>@<hash hex>[@<salt>]``, for example
    ``llama@000000ff@0@00010203@user-42``. Two keys are equal when their wire names are.

    Attributes:
        model_name: Not empty; any text without ``@ { }``, control characters and lone surrogates.
        kv_rank: 0 to 2**32 - 1; see `pack_rank`.
        chunk_hash: The content's digest, at least one byte.
        object_group_id: 0 or more.
        cache_salt: The tenant; ``""`` for none. At most 128 characters, none of ``@ { } / \``,
            control characters or lone surrogates.
        wire_name: The name that every tier uses.

    Raises:
        KeyFormatError: A part is out of form; the message names it.
        TypeError: A part has the wrong type.
    """

    model_name: str = attrs.field(eq=False)
    kv_rank: int = attrs.field(eq=False)
    chunk_hash: bytes = attrs.field(eq=False)
    object_group_id: int = attrs.field(default=0, eq=False)
    cache_salt: str = attrs.field(default="", eq=False)
    wire_name: str = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _require_type("model_name", self.model_name, str)
        _require_type("kv_rank", self.kv_rank, int)
        _require_type("chunk_hash", self.chunk_hash, bytes)
        _require_type("object_group_id", self.object_group_id, int)
        _require_type("cache_salt", self.cache_salt, str)
        if not self.model_name:
            raise KeyFormatError("model_name is empty")
        if unfit := _unfit(_UNFIT_IN_MODEL, self.model_name):
            raise KeyFormatError(f"model_name {self.model_name!r} must not hold {unfit[0]!r}")
        if not 0 <= self.kv_rank <= MAX_RANK:
            raise KeyFormatError(f"kv_rank {_shown(self.kv_rank)} is outside 0..{MAX_RANK}")
        if not self.chunk_hash:
            raise KeyFormatError("chunk_hash is empty: at least one byte is needed")
        if self.object_group_id < 0:
            raise KeyFormatError(f"object_group_id {_shown(self.object_group_id)} is negative")
        # A subclass of str or int may format as something else than was checked above.
        model, salt = str.__str__(self.model_name), str.__str__(self.cache_salt)
        rank, group = int(self.kv_rank), int(self.object_group_id)
        name = f"{model}@{rank:08x}@{group:x}@{self.chunk_hash.hex()}"
        if self.cache_salt:
            if unfit := _unfit(_UNFIT_IN_SALT, self.cache_salt):
                raise KeyFormatError(f"cache_salt {self.cache_salt!r} must not hold {unfit[0]!r}")
            if len(self.cache_salt) > MAX_SALT_CHARS:
                raise KeyFormatError(
                    f"cache_salt has {len(self.cache_salt)} characters, at most {MAX_SALT_CHARS}"
                )
            name = f"{name}@{salt}"
        if len(name) > MAX_WIRE_NAME_BYTES // 4 and len(name.encode()) > MAX_WIRE_NAME_BYTES:
            raise KeyFormatError(
                f"the key's wire name has {len(name.encode())} bytes, at most {MAX_WIRE_NAME_BYTES}"
                ": shorten model_name or chunk_hash"
            )
        object.__setattr__(self, "wire_name", name)

    @staticmethod
    def pack_rank(world_size: int, rank: int, local_world_size: int, local_rank: int) -> int:
        """Pack four numbers of 0 to 255 into a `kv_rank`, eight bits each, world size highest.

        Raises:
            KeyFormatError: A number is outside 0..255 and would spill into its neighbour.
            TypeError: A number is not an integer.
        """
        packed = 0
        for field, value in (
            ("world_size", world_size),
            ("rank", rank),
            ("local_world_size", local_world_size),
            ("local_rank", local_rank),
        ):
            _require_type(field, value, int)
            if not 0 <= value <= MAX_PACKED_FIELD:
                raise KeyFormatError(f"{field} {_shown(value)} is outside 0..{MAX_PACKED_FIELD}")
            packed = packed << 8 | value
        return packed

    @classmethod
    def parse(cls, wire_name: str) -> ObjectKey:
        """Return the key whose wire name this is; the inverse of `wire_name`.

        Raises:
            KeyFormatError: No key has this wire name (a three-field name of older tools included).
        """
        form = _WIRE_FORM.fullmatch(wire_name)
        if form is None:
            raise KeyFormatError(
                f"{wire_name!r} is not <model>@<kv_rank:08x>@<group:x>@<hash hex>[@<salt>]"
            )
        return cls(
            form["model"],
            int(form["rank"], 16),
            bytes.fromhex(form["hash"]),
            int(form["group"], 16),
            form["salt"] or "",
        )


Key: TypeAlias = ObjectKey | str
"""What a caller names a value by."""


class _All(enum.Enum):
    ALL = "all tenants"


ALL: Final = _All.ALL
"""Every tenant, where a call may be about one: no tenant is called so."""

Tenant: TypeAlias = str | Literal[_All.ALL]
"""A tenant's name, ``""`` for keys without one, or `ALL`."""


def wire_name_of(key: Key) -> str:
    """Return the name under which every tier keeps the value of `key`.

    A `str` key is its own wire name, with ``% @ { }`` and control characters written as ``%`` and
    two upper-case hex digits for each byte of their UTF-8.

    Raises:
        KeyFormatError: A `str` key is empty, too long, or holds a lone surrogate.
        TypeError: Neither an `ObjectKey` nor a `str`.
    """
    if type(key) is str:  # first the common cases: every hit in L1 comes by here
        if key.isascii() and 0 < len(key) <= MAX_STR_KEY_BYTES and _find_escaped(key) is None:
            return key
    elif isinstance(key, ObjectKey):
        return key.wire_name
    elif not isinstance(key, str):
        remedy = ": use .hex()" if isinstance(key, bytes | bytearray | memoryview) else ""
        raise TypeError(f"a key is an ObjectKey or a str, not {type(key).__name__}{remedy}")
    if not key:
        raise KeyFormatError("the key is empty")
    if not key.isascii() and _SURROGATE.search(key):
        raise KeyFormatError(f"the key {key!r} holds a lone surrogate, which UTF-8 cannot write")
    if len(key) > MAX_STR_KEY_BYTES // 4 and (size := len(key.encode())) > MAX_STR_KEY_BYTES:
        raise KeyFormatError(
            f"the key has {size} bytes, at most {MAX_STR_KEY_BYTES}: use a digest of it"
        )
    if _ESCAPED_IN_STR.search(key) is None:
        return str.__str__(key)  # a subclass becomes a plain str
    return _ESCAPED_IN_STR.sub(lambda found: _percent(found[0]), key)


def key_of(wire_name: str) -> Key:
    """Return the key whose wire name this is; the inverse of `wire_name_of`.

    Raises:
        KeyFormatError: No key has this wire name, so the value under it is not ours.
    """
    if "@" in wire_name:
        return ObjectKey.parse(wire_name)
    try:
        key = _PERCENT_BYTE.sub(
            lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), wire_name
        )
    except UnicodeDecodeError:
        key = ""
    if not key or wire_name_of(key) != wire_name:
        raise KeyFormatError(f"{wire_name!r} is not the wire name of any key")
    return key


def tenant_of(wire_name: str) -> str:
    """Return the tenant that owns a wire name: an `ObjectKey`'s salt, ``""`` for all others."""
    if "@" not in wire_name:
        return ""
    fields = wire_name.split("@", 4)
    return fields[4] if len(fields) == 5 else ""


def _unfit(form: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the first character that is of the form, or, failing that, a lone surrogate."""
    return form.search(text) or (None if text.isascii() else _SURROGATE.search(text))


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _shown(value: int) -> str:
    # Python refuses to write out integers of thousands of digits.
    return str(value) if value.bit_length() <= 128 else f"of {value.bit_length()} bits"


def _require_type(field: str, value: object, wanted: type) -> None:
    # bool is an int to Python, but no rank and no group.
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise TypeError(f"{field} must be {wanted.__name__}, not {type(value).__name__}")
