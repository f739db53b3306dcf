"""What a configuration comes to."""

from __future__ import annotations

from typing import Any

from tieredkv import TieredStore
from tieredkv.loading import Configuration, load


def loaded(*specs: object, **others: object) -> Configuration[TieredStore]:
    """Load a small L1 over these tiers."""
    return load({"l1": "4MiB", "l2": list(specs), **others}, TieredStore)


def effective(configuration: Configuration[Any]) -> dict[str, Any]:
    """Return every setting by its place."""
    return {setting.path: setting.value for setting in configuration.settings}


def given(configuration: Configuration[Any]) -> dict[str, Any]:
    """Return the settings that are no defaults, without the L1 of `loaded`."""
    return {
        setting.path: setting.value
        for setting in configuration.settings
        if setting.origin == "given" and setting.path != "l1.capacity"
    }
