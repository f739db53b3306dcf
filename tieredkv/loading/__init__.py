"""Configurations: a mapping or a file becomes a store; see `TieredStore.from_config`."""

from __future__ import annotations

from tieredkv.loading.configuration import Configuration, Origin, Setting, load

__all__ = ["Configuration", "Origin", "Setting", "load"]
