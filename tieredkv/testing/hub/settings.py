"""What a local Hub can be told when it starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from tieredkv.config import choice, whole

__all__ = ["CasKind", "HubSettings"]

CasKind: TypeAlias = Literal["http", "local"]


def _limits(low: int, high: int | None = None) -> Callable[[Any, attrs.Attribute[int], int], None]:
    def validate(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        whole(value, field=attribute.name, low=low, high=high)

    return validate


def _check_cas(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    choice(value, field=attribute.name, choices=("http", "local"))


@attrs.frozen(kw_only=True)
class HubSettings:
    """Settings of a local Hub.

    Attributes:
        root: Directory of everything it keeps; absolute, made if need be.
        cas: Where contents go: ``"http"``, to this server too; ``"local"``, hf_xet writes below
            `root` by itself, which one process at a time can do.
        port: 0 is any free one.
        token: Access token of its owner, who may do everything.
        user: Name of the owner.
        xet_token_ttl_s: Life of a token for the CAS. hf_xet renews 30 s before the end.
        page_size: Most items of a page of a listing.
    """

    root: Path
    cas: CasKind = attrs.field(validator=_check_cas)
    port: int = attrs.field(validator=_limits(0, 65535))
    token: str = attrs.field(repr=False)
    user: str
    xet_token_ttl_s: int = attrs.field(validator=_limits(0))
    page_size: int = attrs.field(validator=_limits(1, 1000))
