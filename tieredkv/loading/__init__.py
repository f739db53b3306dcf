"""Configurations: a mapping or a file becomes a store; see `TieredStore.from_config`.

Imported when it is first used: most stores are composed without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tieredkv.loading.configuration import Configuration, Origin, Setting, load

__all__ = ["Configuration", "Origin", "Setting", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.configuration"), name)
    return value
