"""Buckets and the files in them; the contents are in the content store."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from tieredkv.testing.hub.journal import Change, Journal, replay

__all__ = ["Bucket", "BucketFile", "Buckets", "Page", "iso_time", "now_ms"]

_AFTER_SLASH: Final = chr(ord("/") + 1)


def now_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def iso_time(ms: int) -> str:
    """Return Unix milliseconds as the Hub writes times."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@attrs.frozen
class BucketFile:
    """A file in a bucket.

    Attributes:
        path: Its name in the bucket, any text.
        hash: Xet hash of its content.
        size: Bytes.
        modified_ms: As the client says.
        uploaded_ms: By our clock.
        content_type: As the client says, if it does.
    """

    path: str
    hash: str
    size: int
    modified_ms: int
    uploaded_ms: int
    content_type: str | None = None

    def describe(self) -> dict[str, Any]:
        """Return the file as the Hub describes it."""
        return {
            "type": "file",
            "path": self.path,
            "size": self.size,
            "xetHash": self.hash,
            "mtime": iso_time(self.modified_ms),
            "uploadedAt": iso_time(self.uploaded_ms),
        }


@attrs.frozen
class Page:
    """A part of a listing.

    Attributes:
        items: Files and directories as the Hub describes them.
        cursor: Where the next page begins; None on the last.
    """

    items: Sequence[Mapping[str, Any]]
    cursor: str | None


@attrs.define
class Bucket:
    """A bucket. Owned by `Buckets`, under whose lock it is used."""

    id: str
    is_private: bool
    created_ms: int
    files: dict[str, BucketFile] = attrs.field(factory=dict)
    _sorted: list[str] | None = None

    @property
    def namespace(self) -> str:
        """The user or organization that owns it."""
        return self.id.partition("/")[0]

    def describe(self) -> dict[str, Any]:
        """Return the bucket as the Hub describes it."""
        return {
            "id": self.id,
            "author": self.namespace,
            "private": self.is_private,
            "createdAt": iso_time(self.created_ms),
            "size": sum(file.size for file in self.files.values()),
            "totalFiles": len(self.files),
        }

    def set_file(self, path: str, file: BucketFile | None) -> None:
        """Put a file at `path`, or nothing."""
        if (path in self.files) != (file is not None):
            self._sorted = None
        if file is None:
            self.files.pop(path, None)
        else:
            self.files[path] = file

    def list_page(self, prefix: str, *, recursive: bool, cursor: str, limit: int) -> Page:
        """Return files whose path starts with `prefix`, as text: ``logs`` finds ``logs.json`` too.

        Args:
            prefix: Any text, or none.
            recursive: Otherwise what lies deeper than children of `prefix` shows as a directory.
            cursor: From the page before, or empty.
            limit: Most items of a page.
        """
        if self._sorted is None:
            self._sorted = sorted(self.files)
        names = self._sorted
        depth = prefix.rstrip("/").count("/") + 2 if prefix else 1
        items: list[Mapping[str, Any]] = []
        index = bisect_left(names, max(prefix, cursor))
        while index < len(names) and names[index].startswith(prefix):
            if len(items) == limit:
                return Page(items, names[index])
            name = names[index]
            parts = name.split("/", depth)
            if recursive or len(parts) <= depth:
                items.append(self.files[name].describe())
                index += 1
            else:
                folder = "/".join(parts[:depth])
                uploaded = iso_time(self.files[name].uploaded_ms)
                items.append({"type": "directory", "path": folder, "uploadedAt": uploaded})
                index = bisect_left(names, folder + _AFTER_SLASH, index)
        return Page(items, None)


class Buckets:
    """All buckets, kept in a journal.

    Attributes:
        lock: Held around everything that reads or changes a bucket.
    """

    def __init__(self, path: Path) -> None:
        self.lock: AbstractContextManager[bool] = threading.RLock()
        self._buckets: dict[str, Bucket] = {}
        for change in replay(path):
            self._apply(change)
        self._journal = Journal(path, self._changes())

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._buckets.values())

    def get(self, bucket_id: str) -> Bucket | None:
        """Return a bucket; None if there is none of this name."""
        return self._buckets.get(bucket_id)

    def create(self, bucket_id: str, *, is_private: bool) -> None:
        """Make an empty bucket."""
        self._record(
            {"do": "create", "bucket": bucket_id, "private": is_private, "created": now_ms()}
        )

    def delete(self, bucket_id: str) -> None:
        """Remove a bucket with its files."""
        self._record({"do": "delete", "bucket": bucket_id})

    def move(self, bucket_id: str, new_id: str) -> None:
        """Rename a bucket."""
        self._record({"do": "move", "bucket": bucket_id, "to": new_id})

    def set_private(self, bucket_id: str, *, is_private: bool) -> None:
        """Change who may read a bucket."""
        self._record({"do": "settings", "bucket": bucket_id, "private": is_private})

    def set_files(self, bucket_id: str, files: Sequence[tuple[str, BucketFile | None]]) -> None:
        """Put files at paths, or remove what is there (None), in order and all at once."""
        rows = [(path, file and attrs.astuple(file)[1:]) for path, file in files]
        self._record({"do": "files", "bucket": bucket_id, "files": rows})

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _record(self, change: Change) -> None:
        self._apply(change)  # first: what it refuses has not happened
        self._journal.append(change)

    def _apply(self, change: Change) -> None:
        bucket_id = change["bucket"]
        match change["do"]:
            case "create":
                bucket = Bucket(bucket_id, change["private"], change["created"])
                self._buckets[bucket_id] = bucket
            case "delete":
                del self._buckets[bucket_id]
            case "move":
                bucket = self._buckets.pop(bucket_id)
                bucket.id = change["to"]
                self._buckets[bucket.id] = bucket
            case "settings":
                self._buckets[bucket_id].is_private = change["private"]
            case "files":
                for path, row in change["files"]:
                    file = BucketFile(path, *row) if row else None
                    self._buckets[bucket_id].set_file(path, file)
            case unknown:
                raise ValueError(f"a journal of another kind: {unknown!r}")

    def _changes(self) -> Iterator[Change]:
        """The shortest history that ends in the present."""
        for bucket in self:
            yield {
                "do": "create",
                "bucket": bucket.id,
                "private": bucket.is_private,
                "created": bucket.created_ms,
            }
            rows = [(path, attrs.astuple(file)[1:]) for path, file in bucket.files.items()]
            yield {"do": "files", "bucket": bucket.id, "files": rows}
