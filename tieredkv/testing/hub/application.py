"""The Hub without its transport: what it holds, and which route answers what."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import attrs

from tieredkv.testing.hub.accounts import Accounts, XetTokens
from tieredkv.testing.hub.bucket_routes import BucketAccess, BucketRoutes, Site
from tieredkv.testing.hub.buckets import Buckets
from tieredkv.testing.hub.cas import ContentStore
from tieredkv.testing.hub.cas_routes import CasRoutes
from tieredkv.testing.hub.exchange import AnswerError, Request, Response, refusal
from tieredkv.testing.hub.faults import Faults
from tieredkv.testing.hub.file_routes import FileRoutes
from tieredkv.testing.hub.request_log import RequestLog
from tieredkv.testing.hub.settings import HubSettings

__all__ = ["Application", "Delivery"]

_CAS_PREFIX: Final = "/cas/"
_TELEMETRY_PATH: Final = "/v1/telemetry"


@attrs.frozen
class Delivery:
    """How to answer.

    Attributes:
        response: What to send.
        drop: Send nothing, end the connection.
        truncate_bytes: End the connection after so many bytes of the body.
        repeat: Send the body again and again.
    """

    response: Response
    drop: bool = False
    truncate_bytes: int | None = None
    repeat: bool = False


class Application:
    """Everything behind the socket. Any thread may call.

    Args:
        settings: As it was started.

    Attributes:
        accounts: Access tokens.
        tokens: Tokens of the CAS.
        buckets: The buckets.
        faults: What goes wrong.
        log: What was asked.
    """

    def __init__(self, settings: HubSettings) -> None:
        self.accounts: Accounts = Accounts(settings.token, settings.user)
        self.tokens: XetTokens = XetTokens(settings.xet_token_ttl_s)
        self.faults: Faults = Faults()
        self.log: RequestLog = RequestLog()
        store = ContentStore(settings.root / "cas")
        self.buckets: Buckets = Buckets(settings.root / "buckets.ndjson")
        access = BucketAccess(self.buckets, self.accounts)
        over_http = settings.cas == "http"
        local_cas = None if over_http else f"local://{store.directory.resolve()}"
        self._cas = CasRoutes(store, self.tokens) if over_http else None
        site = Site(local_cas=local_cas, page_size=settings.page_size)
        self._routes = _table(
            BucketRoutes(access, self.accounts, self.tokens, site), FileRoutes(access, store, site)
        )

    def exchange(self, request: Request) -> Delivery:
        """Answer a request, and keep a record of it."""
        meeting = self.faults.meet(request)
        entry = self.log.open(
            request,
            user=self._user(request),
            fault=None if meeting is None else meeting.index,
        )
        if meeting is None:
            delivery = Delivery(self._answer(request))
        else:
            fault = meeting.fault
            self.faults.wait(meeting)
            answer = self._answer(fault.alter(request)) if fault.lets_through else None
            delivery = Delivery(
                fault.answer(answer), fault.drop, fault.truncate_bytes, fault.repeat
            )
        if not delivery.drop:
            response = delivery.response
            entry["response_bytes"] = response.span.length if response.span else len(response.body)
            entry["status"] = int(response.status)
        return delivery

    def close(self) -> None:
        """Close what is open; no request may be under way."""
        self.buckets.close()

    def _user(self, request: Request) -> str:
        if request.bearer is None or request.path.startswith((_CAS_PREFIX, _TELEMETRY_PATH)):
            return ""
        account = self.accounts.find(request.bearer)
        return "?" if account is None else account.user

    def _answer(self, request: Request) -> Response:
        try:
            if request.path.startswith(_CAS_PREFIX):
                return self._answer_cas(request)
            if request.path == _TELEMETRY_PATH:
                return Response(HTTPStatus.OK)
            with self.buckets.lock:
                return self._answer_hub(request)
        except AnswerError as error:
            return error.response

    def _answer_cas(self, request: Request) -> Response:
        if self._cas is None:
            return Response(HTTPStatus.NOT_FOUND)
        return self._cas.answer(request, request.path.removeprefix(_CAS_PREFIX))

    def _answer_hub(self, request: Request) -> Response:
        for method, pattern, call in self._routes:
            if method == request.method and (found := pattern.fullmatch(request.path)):
                return call(request, **found.groupdict(""))
        raise refusal(HTTPStatus.NOT_FOUND, f"no route for {request.method} {request.path}")


def _table(
    buckets: BucketRoutes, files: FileRoutes
) -> list[tuple[str, re.Pattern[str], Callable[..., Response]]]:
    namespace = r"/api/buckets/(?P<namespace>[^/]+)"
    bucket = namespace + r"/(?P<name>[^/]+)"
    resolve = r"/buckets/(?P<namespace>[^/]+)/(?P<name>[^/]+)/resolve/(?P<path>.+)"
    routes: list[tuple[str, str, Callable[..., Response]]] = [
        ("GET", r"/api/whoami-v2", buckets.whoami),
        ("POST", r"/api/repos/move", buckets.move),
        ("GET", namespace, buckets.list_buckets),
        ("POST", bucket, buckets.create),
        ("GET", bucket, buckets.describe),
        ("DELETE", bucket, buckets.delete),
        ("PUT", bucket + r"/settings", buckets.change),
        ("GET", bucket + r"/xet-(?P<scope>read|write)-token", buckets.issue_token),
        ("GET", bucket + r"/tree(?:/(?P<prefix>.*))?", files.tree),
        ("POST", bucket + r"/paths-info", files.paths_info),
        ("POST", bucket + r"/batch", files.batch),
        ("HEAD", resolve, files.resolve),
        ("GET", resolve, files.resolve),
    ]
    return [(method, re.compile(path, re.DOTALL), call) for method, path, call in routes]
