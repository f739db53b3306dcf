"""Values as files in a directory."""

from tieredkv.backends.disk.backend import DiskBackend

__all__ = ["DiskBackend"]
