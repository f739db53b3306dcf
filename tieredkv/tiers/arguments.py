"""What callers of a store hand in, checked; before all of it has passed nothing is done.

Values, and buffers to fill, are in `tieredkv.tiers.buffers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tieredkv import backends
from tieredkv.config import L1_NAME, choice, parse_size, seconds, whole
from tieredkv.errors import ConfigError, ValueFormatError
from tieredkv.frames import expires_in
from tieredkv.keys import ALL

if TYPE_CHECKING:
    from tieredkv.config import Size
    from tieredkv.keys import Key, Tenant
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.tier import Tier

__all__ = [
    "expires_ms",
    "limits_of",
    "named_tier",
    "require_backend",
    "require_clearable",
    "require_listable",
    "require_room",
    "require_size",
    "require_tier",
]


def require_backend(candidate: object, taken: Sequence[str]) -> None:
    """Check that it is a backend, with a name that none of the others has.

    Raises:
        ConfigError: Its name is taken.
        TypeError: It is none.
    """
    if not isinstance(candidate, backends.Backend):
        raise TypeError(f"l2 holds a {type(candidate).__name__}, which is not a Backend")
    if candidate.name in (L1_NAME, *taken):
        raise ConfigError(f"l2: the name {candidate.name!r} is taken; give the backend another")


def require_tier(tiers: Sequence[Tier], name: str) -> None:
    """Check that it is L1's name or that of an L2 tier.

    Raises:
        ConfigError: It is not.
    """
    choice(name, field="tier", choices=[L1_NAME, *(tier.name for tier in tiers)])


def require_listable(tiers: Sequence[Tier], name: str) -> None:
    """Check that it is L1's name or that of an L2 tier that can list.

    Raises:
        ConfigError: It is not.
    """
    listable = [tier.name for tier in tiers if tier.backend.capabilities.listable]
    choice(name, field="tier", choices=[L1_NAME, *listable])


def require_clearable(tiers: Sequence[Tier], name: str) -> None:
    """Check that it is L1's name or that of an L2 tier which can list a space of its own.

    Raises:
        ConfigError: It is not.
    """
    require_listable(tiers, name)
    if any(tier.name == name and not tier.backend.has_own_space for tier in tiers):
        raise ConfigError(
            f"tiers: {name!r} has no space of its own, so that other users' values might go, too: "
            "give the backend a prefix"
        )


def named_tier(tiers: Sequence[Tier], name: str) -> Tier:
    """Return the L2 tier of a name.

    Raises:
        ConfigError: There is none.
    """
    choice(name, field="name", choices=[tier.name for tier in tiers])
    return next(tier for tier in tiers if tier.name == name)


def require_size(size: object) -> None:
    """Check that it is a number of bytes, or None.

    Raises:
        ConfigError: It is not.
    """
    if size is not None and (type(size) is not int or size < 0):
        whole(size, field="size", low=0)


def require_room(l1: MemoryTier, key: Key, nbytes: int) -> None:
    """Check that a value can be in L1, or in its overflow, at all.

    Raises:
        ValueFormatError: It is too large.
    """
    if nbytes > l1.largest_bytes:
        raise ValueFormatError(
            f"the value of {key!r} has {nbytes} bytes; L1 takes at most {l1.largest_bytes}: "
            "give l1 or its overflow more capacity"
        )


def expires_ms(ttl_s: object) -> int:
    """Return in Unix milliseconds when what lives so many seconds from now on expires.

    Raises:
        ConfigError: It is no positive number.
    """
    return expires_in(seconds(ttl_s, field="ttl_s"))


def limits_of(quotas: Mapping[Tenant, Size]) -> dict[Tenant, int]:
    """Return quotas in bytes.

    Raises:
        ConfigError: One is not a size.
        TypeError: A tenant is neither a text nor `ALL`.
    """
    limits: dict[Tenant, int] = {}
    for tenant, capacity in quotas.items():
        if not isinstance(tenant, str) and tenant is not ALL:
            raise TypeError(f"a tenant is a str or ALL, not {type(tenant).__name__}")
        limits[tenant] = parse_size(capacity, field=f"quota of {tenant!r}")
    return limits
