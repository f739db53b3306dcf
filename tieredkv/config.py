"""Settings: strict validation at the field, sizes in bytes or as text.

Everything a user may configure goes through the validators here, so that a wrong value is refused
where it is written, with the field, the value and what would be right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from tieredkv.errors import ConfigError

__all__ = [
    "GiB",
    "Integrity",
    "KiB",
    "L1Config",
    "MiB",
    "Promotion",
    "Size",
    "TiB",
    "WriteBack",
    "WriteOn",
    "WritePolicy",
    "WriteThrough",
    "parse_size",
]

KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB
TiB: Final = 1024 * GiB

Size: TypeAlias = int | str
"""Bytes, or a size string: ``"64MiB"``, ``"1.5 GB"``."""

Integrity: TypeAlias = Literal["checksum", "size"]
"""How values prove themselves: framed, with a checksum, or bare, by their size only."""

L1_NAME: Final = "l1"
"""What the first tier is called."""

_UNITS: Final = {
    "KiB": KiB,
    "MiB": MiB,
    "GiB": GiB,
    "TiB": TiB,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_SIZE_FORM: Final = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", re.ASCII)

_LARGEST: Final = 2**63 - 1
_MAX_BLOCKS: Final = 2**31 - 1
DEFAULT_ALIGNMENT_BYTES: Final = 4 * KiB
MIN_OVERFLOW_BYTES: Final = 64 * MiB


def parse_size(value: object, *, field: str = "size") -> int:
    """Return a number of bytes given as an `int` or as a string with one of eight units.

    Args:
        value: Bytes as an integer, or a number followed by ``KiB MiB GiB TiB`` (powers of 1024) or
            ``kB MB GB TB`` (powers of 1000), exactly so. Fractions of a byte are dropped.
        field: How an error names the setting.

    Raises:
        ConfigError: Not a size, negative, or a unit with two readings such as ``4G``.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return whole(value, field=field, low=0)
    form = _SIZE_FORM.fullmatch(value) if isinstance(value, str) else None
    if form is None:
        raise ConfigError(f"{field}={value!r} is not a size: give bytes (int) or text like '4GiB'")
    number, unit = form.groups()
    if unit in _UNITS:
        return whole(_scaled(number, _UNITS[unit]), field=field, low=0)
    if (letter := unit.upper()) in {"K", "M", "G", "T"}:
        readings = [name for name in _UNITS if name.upper().startswith(letter)]
        both = " or ".join(
            f"'{number}{name}' ({_scaled(number, _UNITS[name])} bytes)" for name in readings
        )
        raise ConfigError(f"{field}={value!r} has two readings: write {both}")
    if not unit:
        raise ConfigError(f"{field}={value!r} has no unit: give an int for bytes, or add one")
    raise ConfigError(
        f"{field}={value!r} has no such unit: use {' '.join(_UNITS)}" + nearest(unit, _UNITS)
    )


def whole(value: object, *, field: str, low: int, high: int | None = None) -> int:
    """Return `value` if it is an integer in range; `bool` is not one.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{field}={value!r} must be a whole number, not {type(value).__name__}")
    if abs(value) > _LARGEST:
        raise ConfigError(f"{field} is an integer of {value.bit_length()} bits, far out of range")
    if value < low or (high is not None and value > high):
        raise ConfigError(f"{field}={value} is outside {_range(low, high)}")
    return value


def number(value: object, *, field: str, low: float, high: float | None = None) -> float:
    """Return `value` as a float if it is a finite number in range.

    Raises:
        ConfigError: It is not a number, a `bool`, NaN, infinite or out of range.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{field}={value!r} must be a number, not {type(value).__name__}")
    try:
        result = float(value)
    except OverflowError:  # an integer beyond any float
        result = math.inf
    if not math.isfinite(result):
        raise ConfigError(f"{field}={result} must be finite")
    if result < low or (high is not None and result > high):
        raise ConfigError(f"{field}={value} is outside {_range(low, high)}")
    return result


def seconds(value: object, *, field: str) -> float:
    """Return `value` as a positive number of seconds.

    Raises:
        ConfigError: It is not one.
    """
    result = number(value, field=field, low=0)
    if result == 0:
        raise ConfigError(f"{field}={value!r} must be above 0 seconds")
    return result


def boolean(value: object, *, field: str) -> bool:
    """Return `value` if it is a `bool`; words such as ``"false"`` are refused.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{field}={value!r} must be true or false, not {type(value).__name__}")
    return value


def choice(value: object, *, field: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`.

    Raises:
        ConfigError: It is not; the nearest choice is named.
    """
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ConfigError(f"{field}={value!r} must be one of {listed}" + nearest(value, choices))
    return value


def _scaled(number: str, unit_bytes: int) -> int:
    digits, _, fraction = number.partition(".")
    per_unit: int = 10 ** len(fraction)
    return int(digits + fraction) * unit_bytes // per_unit


def nearest(value: object, names: Collection[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the name that is most like `value`; empty if none is."""
    if not isinstance(value, str):
        return ""
    import difflib  # noqa: PLC0415 - for mistakes only

    matches = difflib.get_close_matches(value.lower(), [name.lower() for name in names], n=1)
    return next((f" (did you mean {n!r}?)" for n in names if matches == [n.lower()]), "")


def _range(low: float, high: float | None) -> str:
    return f"{low}..{high}" if high is not None else f"{low} and up"


Check: TypeAlias = Callable[..., Any]


def checked(check: Check, **limits: object) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Make an attrs validator of one of the functions above."""

    def validate(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        check(value, field=attribute.name, **limits)

    return validate


def _capacity(value: Size) -> int:
    return whole(parse_size(value, field="capacity"), field="capacity", low=1)


def _overflow(value: Size) -> int:
    return parse_size(value, field="overflow")


def _default_overflow(config: L1Config) -> int:
    return max(MIN_OVERFLOW_BYTES, config.capacity // 8)


def _check_alignment(config: L1Config, attribute: attrs.Attribute[int], value: int) -> None:
    whole(value, field=attribute.name, low=64, high=GiB)
    if value & (value - 1):
        raise ConfigError(f"{attribute.name}={value} must be a power of two")
    if config.capacity < value:
        raise ConfigError(f"capacity={config.capacity} is below one block of {value} bytes")
    if config.capacity // value > _MAX_BLOCKS:
        raise ConfigError(
            f"capacity={config.capacity} is more than 2**31 blocks of {attribute.name}={value}: "
            "lower the one or raise the other"
        )


def _check_buffer(config: L1Config, attribute: attrs.Attribute[object], value: object) -> None:
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # decided by the attempt
    except TypeError:
        kind = type(value).__name__
        raise ConfigError(
            f"{attribute.name} must be an object with the buffer protocol, not {kind}"
        ) from None
    if view.readonly or not view.c_contiguous:
        raise ConfigError(f"{attribute.name} must be writable and C-contiguous")
    if view.nbytes < config.capacity:
        raise ConfigError(
            f"{attribute.name} has {view.nbytes} bytes, fewer than capacity={config.capacity}"
        )


PolicyName: TypeAlias = Literal[
    "default", "gittins", "lru", "s3fifo", "arc", "isolated_lru", "noop"
]
"""What an eviction policy is called in a configuration; ``"default"`` is the best we know."""


@attrs.frozen(kw_only=True)
class L1Config:
    """The first tier: a bounded pool of memory in this process.

    Attributes:
        capacity: Bytes of the pool (or a size string); a hard limit.
        overflow: Bytes of private blocks for what the pool cannot take; default the larger of
            64 MiB and an eighth of the capacity. 0 turns them off.
        alignment_bytes: Blocks start and end at multiples of this power of two.
        trigger_watermark: Eviction starts when this fraction of the capacity is in use, …
        eviction_ratio: … and goes on until this fraction of that is free again; 0: it only ever
            frees what a put needs.
        lease_warn_s: A lease that is held longer is logged, once.
        eviction_policy: Who leaves first: ``"default"``, ``"lru"``, ``"arc"``, ``"s3fifo"``,
            ``"isolated_lru"`` (tenants kept apart), ``"noop"`` (nobody), or ``"gittins"``, which is
            the default's name.
        max_age_s: A copy promoted from L2 is used for so long at the most, then loaded again; None
            for no limit. For values that other processes may replace.
        prefault: Touch all of the pool when the store opens, in a worker thread, so that no put
            waits for the system to hand out pages.
        buffer: Writable C-contiguous bytes of the caller's to use as the pool, such as pinned
            memory; the caller leaves them alone as long as the store or a view of a value lives.
    """

    capacity: int = attrs.field(converter=_capacity)
    overflow: int = attrs.field(
        converter=_overflow, default=attrs.Factory(_default_overflow, takes_self=True)
    )
    alignment_bytes: int = attrs.field(default=DEFAULT_ALIGNMENT_BYTES, validator=_check_alignment)
    trigger_watermark: float = attrs.field(default=0.8, validator=checked(number, low=0, high=1))
    eviction_ratio: float = attrs.field(default=0.2, validator=checked(number, low=0, high=1))
    lease_warn_s: float = attrs.field(default=60.0, validator=checked(seconds))
    eviction_policy: PolicyName = attrs.field(
        default="default", validator=checked(choice, choices=get_args(PolicyName))
    )
    max_age_s: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(checked(seconds))
    )
    prefault: bool = attrs.field(default=False, validator=checked(boolean))
    buffer: object | None = attrs.field(
        default=None, repr=False, validator=attrs.validators.optional(_check_buffer)
    )


Requirement: TypeAlias = Literal["any", "all", "none"]


@attrs.frozen(kw_only=True)
class WriteThrough:
    """Write policy: a put goes to L1 and to the L2 tiers at once.

    Attributes:
        require: When a put is acknowledged: ``"any"``, one L2 tier has stored it (default);
            ``"all"``, every L2 tier has; ``"none"``, L1 has. Only tiers that are written with a put
            count (`WriteOn`); without one L1 suffices.
    """

    require: Requirement = attrs.field(
        default="any", validator=checked(choice, choices=("any", "all", "none"))
    )


def _max_dirty(value: Size | None) -> int | None:
    return None if value is None else parse_size(value, field="max_dirty")


@attrs.frozen(kw_only=True)
class WriteBack:
    """Write policy: a put is acknowledged once L1 has the value; the L2 tiers get it afterwards.

    Until it has an outcome from every tier a value is *dirty* and stays in L1. What the process has
    not written when it ends is lost: `TieredStore.flush` and `TieredStore.aclose` write what is
    dirty, and name what is not in its tier. A value that L1 cannot take is written through.

    A write that failed because its tier did not answer is tried again, some seconds long.

    Attributes:
        max_dirty: Most bytes of dirty values (or a size string), each tier's share of it counted
            apart; None: a quarter of L1. A put for which there is no room waits for it, at most for
            the tier's deadline and not for a tier that fails; then it is SKIPPED("busy") there.
        workers: Most calls to one tier at a time.
        linger_s: Seconds for which a value waits for others to be written with it, or for a newer
            one of its key, which is then written instead.
    """

    max_dirty: int | None = attrs.field(default=None, converter=_max_dirty)
    workers: int = attrs.field(default=4, validator=checked(whole, low=1))
    linger_s: float = attrs.field(default=0.05, validator=checked(number, low=0))


WritePolicy: TypeAlias = WriteThrough | WriteBack
"""When a put is acknowledged, and when the L2 tiers get its value."""

WriteOn: TypeAlias = Literal["put", "evict", "second_hit", "never"]
"""When a value is written to an L2 tier: with its put; when L1 evicts it; when L1 has answered for
it twice; never. Whatever it says, deletes reach the tier, and reads do."""

Promotion: TypeAlias = Literal["always", "second_hit", "never"]
"""When a value that an L2 tier answers with enters the tiers above."""
