"""What passes between transport and routes: a request, a response, a refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import attrs

__all__ = ["AnswerError", "FileSpan", "Request", "Response", "ndjson_lines", "refusal"]

_BYTE_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)", re.ASCII)


@attrs.frozen(kw_only=True)
class Request:
    """One HTTP request, read completely.

    Attributes:
        method: In capitals.
        path: Still percent-encoded: a ``%2F`` inside a file name must not become a separator.
        query: What follows ``?``, encoded.
        headers: Names in lower case.
        body: Decoded from chunks if it came in chunks.
        failing: Operations of a batch on matching paths fail, because a fault says so.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = attrs.field(default=b"", repr=False)
    failing: re.Pattern[str] | None = None

    @property
    def origin(self) -> str:
        """Address of the Hub as this client knows it: there may be a proxy between them."""
        return f"http://{self.headers.get('host', '')}"

    @property
    def bearer(self) -> str | None:
        """The bearer token; None when the request is anonymous."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def parameter(self, name: str, default: str = "") -> str:
        """Return a query parameter, the last one if it is repeated."""
        return dict(parse_qsl(self.query, keep_blank_values=True)).get(name, default)

    def json(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object; no body is an empty one.

        Raises:
            AnswerError: It is something else (400).
        """
        try:
            document = json.loads(self.body or b"{}")
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise refusal(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
        return document

    def byte_range(self, size: int) -> tuple[int, int] | None:
        """Return the wanted part of `size` bytes as ``(start, end)``; None if all are wanted.

        Raises:
            AnswerError: The range begins behind the end (416).
        """
        form = _BYTE_RANGE.fullmatch(self.headers.get("range", ""))
        if form is None:
            return None
        start = int(form[1])
        end = min(int(form[2]) + 1, size) if form[2] else size
        if start >= end:
            raise AnswerError(Response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE))
        return start, end


@attrs.frozen
class FileSpan:
    """A part of a file that is sent from disk as it is.

    Attributes:
        path: The file.
        offset: Where the part begins, in bytes.
        length: How many bytes it has.
    """

    path: Path
    offset: int
    length: int

    def read(self) -> bytes:
        """Return the bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


@attrs.frozen
class Response:
    """One answer.

    Attributes:
        status: HTTP status.
        body: What is sent, unless `span` is.
        headers: In addition to those of the transport.
        span: The body is this part of a file.
    """

    status: int
    body: bytes = attrs.field(default=b"", repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    span: FileSpan | None = None

    @classmethod
    def of_json(
        cls,
        document: object,
        *,
        status: int = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return an answer that carries `document` as JSON."""
        return cls(
            status,
            json.dumps(document).encode(),
            {"Content-Type": "application/json; charset=utf-8", **(headers or {})},
        )


class AnswerError(Exception):
    """A request ends here, with an answer that is not a success.

    Attributes:
        response: The answer.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def refusal(status: int, message: str, code: str | None = None) -> AnswerError:
    """Return a refusal in the Hub's form: the client reads the headers, people the body.

    Args:
        status: HTTP status.
        message: ``X-Error-Message``.
        code: ``X-Error-Code``, from which the client chooses the class of its exception.
    """
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return AnswerError(Response.of_json({"error": message}, status=status, headers=headers))


def ndjson_lines(body: bytes) -> list[dict[str, Any]]:
    """Return the objects of a body with one JSON object a line.

    Raises:
        AnswerError: A line is something else (400).
    """
    try:
        lines: list[Any] = [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError:
        lines = [None]
    if not all(isinstance(line, dict) for line in lines):
        raise refusal(HTTPStatus.BAD_REQUEST, "the body is not one JSON object a line")
    return lines
