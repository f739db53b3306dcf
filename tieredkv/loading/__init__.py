"""Configurations: a mapping or a file becomes a store; see `TieredStore.from_config`.

Imported when it is first used: most stores are composed without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tieredkv.deferred import imported

if TYPE_CHECKING:
    from tieredkv.loading.configuration import Configuration, Origin, Setting, load

__all__ = ["Configuration", "Origin", "Setting", "load"]


def __getattr__(name: str) -> Any:
    return imported(globals(), name, {}, "configuration")
