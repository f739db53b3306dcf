"""The CAS over HTTP: what hf_xet asks when it uploads and downloads.

Source: https://huggingface.co/docs/xet (CAS API), and the requests of hf_xet 1.7 and 1.8. What is
not answered here (chunk deduplication, upload grants) gets a 404, after which the client does
without.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from tieredkv.testing.hub.accounts import XetTokens
from tieredkv.testing.hub.cas import ContentStore, Fetch, Reconstruction
from tieredkv.testing.hub.exchange import AnswerError, FileSpan, Request, Response

__all__ = ["CasRoutes"]

_HASH: Final = r"([0-9a-f]{64})"


class CasRoutes:
    """Requests below ``/cas/``.

    Args:
        store: Where the contents are.
        tokens: Who may come in.
    """

    def __init__(self, store: ContentStore, tokens: XetTokens) -> None:
        self._store = store
        self._tokens = tokens
        routes: list[tuple[str, str, Callable[..., Response]]] = [
            ("POST", rf"v1/xorbs/[^/]+/{_HASH}", self._add_xorb),
            ("POST", r"v2/shards", self._add_shard),
            ("GET", rf"v2/reconstructions/{_HASH}", self._reconstruct),
            ("GET", rf"data/{_HASH}", self._read_xorb),
        ]
        self._routes = [(method, re.compile(path), call) for method, path, call in routes]

    def answer(self, request: Request, path: str) -> Response:
        """Answer a request; `path` is what follows ``/cas/``.

        Raises:
            AnswerError: It is refused.
        """
        for method, pattern, call in self._routes:
            if method == request.method and (found := pattern.fullmatch(path)):
                return call(request, *found.groups())
        return Response(HTTPStatus.NOT_FOUND)

    def _add_xorb(self, request: Request, xorb: str) -> Response:
        self._tokens.require(request, "write")
        try:
            is_new = self._store.add_xorb(xorb, request.body)
        except ValueError as error:
            raise _unfit(error) from error
        return Response.of_json({"was_inserted": is_new})

    def _add_shard(self, request: Request) -> Response:
        self._tokens.require(request, "write")
        try:
            self._store.add_shard(request.body)
        except ValueError as error:
            raise _unfit(error) from error
        done = b'{"type":"result"}\n'
        return Response(HTTPStatus.OK, done, {"Content-Type": "application/x-ndjson"})

    def _reconstruct(self, request: Request, file_hash: str) -> Response:
        self._tokens.require(request, "read")
        file = self._store.find(file_hash)
        if file is None:
            return Response(HTTPStatus.NOT_FOUND)
        start, end = request.byte_range(file.size) or (0, file.size)
        try:
            plan = self._store.reconstruct(file, start, end)
        except FileNotFoundError:  # somebody has taken a xorb away
            return Response(HTTPStatus.NOT_FOUND)
        return Response.of_json(_described(plan, f"{request.origin}/cas/data"))

    def _read_xorb(self, request: Request, xorb: str) -> Response:
        """Stands for the address of a storage service that is signed by itself: no token."""
        path = self._store.xorb_path(xorb)
        if not path.exists():
            return Response(HTTPStatus.NOT_FOUND)
        size = path.stat().st_size
        wanted = request.byte_range(size)
        if wanted is None:
            return Response(HTTPStatus.OK, span=FileSpan(path, 0, size))
        start, end = wanted
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        span = FileSpan(path, start, end - start)
        return Response(HTTPStatus.PARTIAL_CONTENT, headers=headers, span=span)


def _described(plan: Reconstruction, data_url: str) -> dict[str, Any]:
    return {
        "offset_into_first_range": plan.skip,
        "terms": [
            {
                "hash": term.xorb,
                "unpacked_length": term.size,
                "range": {"start": term.first, "end": term.end},
            }
            for term in plan.terms
        ],
        "xorbs": {
            xorb: [_described_fetch(f"{data_url}/{xorb}", fetch) for fetch in fetches]
            for xorb, fetches in plan.fetches.items()
        },
    }


def _described_fetch(url: str, fetch: Fetch) -> dict[str, Any]:
    # Bytes end with the last, chunks after the last: so the protocol has it.
    chunks = {"start": fetch.first, "end": fetch.end}
    span = {"start": fetch.start_byte, "end": fetch.end_byte - 1}
    return {"url": url, "ranges": [{"chunks": chunks, "bytes": span}]}


def _unfit(error: ValueError) -> AnswerError:
    return AnswerError(Response(HTTPStatus.BAD_REQUEST, str(error).encode()))
