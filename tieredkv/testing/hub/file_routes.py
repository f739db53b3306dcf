"""The Hub's API about the files of a bucket: list, look up, change many at once."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from tieredkv.testing.hub.bucket_routes import BucketAccess, Site, next_page
from tieredkv.testing.hub.buckets import BucketFile, now_ms
from tieredkv.testing.hub.cas import ContentStore
from tieredkv.testing.hub.exchange import Request, Response, ndjson_lines, refusal
from tieredkv.testing.hub.xet import is_hash

__all__ = ["FileRoutes"]

MAX_PATHS: Final = 1000
MAX_OPERATIONS: Final = 1000
"""Both as the client cuts its calls."""


class FileRoutes:
    """Requests that concern files.

    Args:
        access: The buckets, and who may use them.
        store: Knows the size of what was uploaded.
        site: Where all this is.
    """

    def __init__(self, access: BucketAccess, store: ContentStore, site: Site) -> None:
        self._access = access
        self._store = store
        self._site = site

    def tree(self, request: Request, namespace: str, name: str, prefix: str = "") -> Response:
        """``GET …/tree[/{prefix}]``; a prefix that nothing has is an empty list."""
        bucket = self._access.readable(request, f"{namespace}/{name}")
        recursive = request.parameter("recursive").lower() in ("true", "1")
        limit = request.parameter("limit")
        page = bucket.list_page(
            unquote(prefix),
            recursive=recursive,
            cursor=request.parameter("cursor"),
            limit=min(int(limit), self._site.page_size)
            if limit.isdecimal()
            else self._site.page_size,
        )
        url = f"{request.origin}/api/buckets/{bucket.id}/tree" + (prefix and f"/{prefix}")
        url += f"?recursive={str(recursive).lower()}&limit={limit}"
        return Response.of_json(page.items, headers=next_page(url, page.cursor))

    def paths_info(self, request: Request, namespace: str, name: str) -> Response:
        """``POST …/paths-info``: those that exist, each once."""
        bucket = self._access.readable(request, f"{namespace}/{name}")
        paths = request.json().get("paths")
        if not isinstance(paths, list) or len(paths) > MAX_PATHS:
            raise refusal(HTTPStatus.BAD_REQUEST, f"paths must be a list of at most {MAX_PATHS}")
        found = (bucket.files.get(path) for path in dict.fromkeys(map(str, paths)))
        return Response.of_json([file.describe() for file in found if file is not None])

    def resolve(self, request: Request, namespace: str, name: str, path: str) -> Response:
        """``HEAD /buckets/…/resolve/{path}``; contents are read from the CAS only."""
        bucket = self._access.readable(request, f"{namespace}/{name}")
        file = bucket.files.get(unquote(path))
        if file is None:
            raise refusal(HTTPStatus.NOT_FOUND, "Entry not found", "EntryNotFound")
        if request.method != "HEAD":
            raise refusal(HTTPStatus.NOT_IMPLEMENTED, "contents are read with hf_xet only")
        refresh = f"{request.origin}/api/buckets/{bucket.id}/xet-read-token"
        headers = {
            "Content-Length": str(file.size),
            "Content-Type": file.content_type or "application/octet-stream",
            "ETag": f'"{file.hash}"',
            "Link": f'<{refresh}>; rel="xet-auth"',
            "X-Linked-Size": str(file.size),
            "X-Xet-Hash": file.hash,
            "X-Xet-Refresh-Route": refresh,
        }
        return Response(HTTPStatus.OK, headers=headers)

    def batch(self, request: Request, namespace: str, name: str) -> Response:
        """``POST …/batch``: each operation succeeds or fails for itself."""
        bucket = self._access.writable(request, f"{namespace}/{name}")
        operations = ndjson_lines(request.body)
        if len(operations) > MAX_OPERATIONS:
            raise refusal(HTTPStatus.BAD_REQUEST, f"at most {MAX_OPERATIONS} operations at once")
        changes: list[tuple[str, BucketFile | None]] = []
        failed = []
        for operation in operations:
            outcome = self._outcome(request, operation)
            if isinstance(outcome, str):
                failed.append({"path": operation.get("path"), "error": outcome})
            else:
                changes.append((operation["path"], outcome))
        self._access.buckets.set_files(bucket.id, changes)
        nothing_done = failed and not changes
        return Response.of_json(
            {
                "success": not failed,
                "processed": len(operations),
                "succeeded": len(changes),
                "failed": failed,
            },
            status=HTTPStatus.UNPROCESSABLE_ENTITY if nothing_done else HTTPStatus.OK,
        )

    def _outcome(self, request: Request, operation: dict[str, Any]) -> BucketFile | str | None:
        """Return the file that will be at the operation's path (None: no file), or why it fails."""
        path, kind = operation.get("path"), operation.get("type")
        if not isinstance(path, str) or not path or path.startswith("/") or "\0" in path:
            return "Invalid path"
        if request.failing is not None and request.failing.search(path):
            return "Injected failure"
        if kind == "deleteFile":
            return None  # what is absent already is deleted, too
        if kind == "copyFile" and not self._may_copy(request, operation):
            return "The source is not a bucket that can be read"
        return self._file(path, operation) if kind in ("addFile", "copyFile") else f"No {kind} here"

    def _file(self, path: str, operation: dict[str, Any]) -> BucketFile | str:
        digest, modified_ms = operation.get("xetHash"), operation.get("mtime", 0)
        content = self._store.find(digest) if is_hash(digest) else None
        if content is None:
            return f"Xet file {digest} not found"
        if not isinstance(modified_ms, int):
            return "Invalid mtime"
        return BucketFile(
            path=path,
            hash=content.hash,
            size=content.size,
            modified_ms=modified_ms,
            uploaded_ms=now_ms(),
            content_type=operation.get("contentType"),
        )

    def _may_copy(self, request: Request, operation: dict[str, Any]) -> bool:
        source = str(operation.get("sourceRepoId"))
        return operation.get("sourceRepoType") == "bucket" and self._access.allows(request, source)
