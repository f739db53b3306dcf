"""The Hub's bucket API over one asynchronous client of our own.

The client is made by huggingface_hub, which decides between httpx and httpx2 and reads proxies and
certificates as its users expect; nothing of it is shared with them. Every request has a timeout and
a place in a common budget of retries, and every failure is a `HubError`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import anyio

from tieredkv.clients.hub_answers import (
    Answer,
    BucketInfo,
    FileInfo,
    Grant,
    Listing,
    failure_of,
    field,
    files,
    grant_of,
    origin,
    parsed,
    read,
    refusals,
    shown,
)
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.clients.retries import Retries
from tieredkv.errors import MissingDependencyError

__all__ = [
    "MAX_OPERATIONS",
    "MAX_PATHS",
    "HubClient",
    "Scope",
    "load_hub",
]

Scope: TypeAlias = Literal["read", "write"]

MAX_PATHS: Final = 1000
"""Paths in one question. Source: `HfApi.get_bucket_paths_info`."""

MAX_OPERATIONS: Final = 1000
"""Operations in one batch. Source: `HfApi.batch_bucket_files`."""

_ATTEMPTS: Final = 4
_MOST_REDIRECTS: Final = 5
_CONCURRENT: Final = 4
_INSTALL: Final = "pip install 'huggingface_hub>=1.5,<3'"


def load_hub() -> str:
    """Import huggingface_hub, which takes some tenths of a second; return its default endpoint.

    Raises:
        MissingDependencyError: It is absent, or older than its first release with buckets.
    """
    try:
        vendor = import_module("huggingface_hub")
        constants = import_module("huggingface_hub.constants")
    except ImportError as error:
        raise MissingDependencyError(
            f"Hugging Face Buckets need huggingface_hub ({error}): {_INSTALL}"
        ) from None
    missing = [name for name in ("get_async_session", "HfApi") if not hasattr(vendor, name)]
    if not missing and not hasattr(vendor.HfApi, "batch_bucket_files"):
        missing = ["HfApi.batch_bucket_files"]
    if missing:
        raise MissingDependencyError(
            f"huggingface_hub {vendor.__version__} has no {', '.join(missing)}: {_INSTALL}"
        )
    return str(constants.ENDPOINT)


class HubClient:
    """Requests about one bucket. Made and used on one event loop, after `load_hub`."""

    def __init__(
        self,
        endpoint: str,
        bucket_id: str,
        find_token: Callable[[], str | None],
        *,
        user_agent: str,
        request_timeout_s: float,
        connect_timeout_s: float,
        patience_s: float,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            endpoint: Address of the Hub.
            bucket_id: Namespace and name.
            find_token: Returns the access token, None for anonymous; asked again when the Hub does
                not know the token any more.
            user_agent: What we are.
            request_timeout_s: Longest silence within a request.
            connect_timeout_s: Longest time to connect.
            patience_s: Longest time for a call with all its attempts and pauses.
        """
        self.retries: Retries = Retries()
        self.requests: int = 0
        self._endpoint = endpoint.rstrip("/")
        self._bucket_id = bucket_id
        self._patience_s = patience_s
        self._product = user_agent
        self._find_token = find_token
        self._token = find_token()
        self._headers = self._new_headers()
        self._http: Any = import_module("huggingface_hub").get_async_session()
        self._vendor: Any = sys.modules[type(self._http).__module__.partition(".")[0]]
        self._http.timeout = self._vendor.Timeout(request_timeout_s, connect=connect_timeout_s)
        # Never a login of the host's: that of ~/.netrc would take the place of our header.
        self._http.auth = _as_it_is
        # huggingface_hub's own reads what it cannot use, whatever that unpacks to.
        self._http.event_hooks = {**self._http.event_hooks, "response": []}
        self._turns = anyio.CapacityLimiter(_CONCURRENT)
        self._closing = False

    @property
    def user_agent(self) -> str:
        """What we tell servers of ourselves."""
        return self._headers["user-agent"]

    def stop_waiting(self) -> None:
        """Make no more retries: the owner closes."""
        self._closing = True

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    # -- calls -----------------------------------------------------------------------------------

    async def bucket_info(self) -> BucketInfo:
        """Describe the bucket.

        Raises:
            HubError: It cannot be done; NO_BUCKET if there is none.
        """
        answer = await self._json("GET", self._bucket_url())
        return BucketInfo(is_private=field(answer, "private", bool))

    async def whoami(self) -> tuple[str | None, str]:
        """Return whose token it is (None: there is none), and what it may do in a word, or "".

        Raises:
            HubError: It cannot be done; UNAUTHORIZED if the Hub does not know the token.
        """
        if self._token is None:
            return None, ""
        answer = await self._json("GET", f"{self._endpoint}/api/whoami-v2")
        name, token = field(answer, "name", str), answer
        for part in ("auth", "accessToken"):
            token = token.get(part) if isinstance(token, dict) else None
        role = token.get("role") if isinstance(token, dict) else None
        return name, role if isinstance(role, str) else ""

    async def create_bucket(self, *, is_private: bool) -> None:
        """Create the bucket; fine if it exists.

        Raises:
            HubError: It cannot be done.
        """
        visibility = {"visibility": "private" if is_private else "public"}
        await self._send("POST", self._bucket_url(), body=visibility, accept=frozenset({409}))

    async def paths_info(self, paths: Sequence[str]) -> dict[str, FileInfo]:
        """Look up to `MAX_PATHS` files up; those that do not exist are not in the answer.

        Raises:
            HubError: It cannot be done.
        """
        answer = await self._json("POST", f"{self._bucket_url()}/paths-info", {"paths": [*paths]})
        return dict(files(answer))

    async def tree(self, prefix: str, listing: Listing) -> list[tuple[str, FileInfo]]:
        """Return the next page of the files in a directory (``""``: the top), and turn it.

        Raises:
            HubError: It cannot be done; a directory that nothing has is empty.
        """
        url = listing.page or f"{self._bucket_url()}/tree"
        if prefix and listing.page is None:
            url += f"/{quote(prefix, safe='')}"
        answer = await self._send("GET", url, accept=frozenset({404}))
        if answer.status == 404:
            if answer.headers.get("x-error-code") == "EntryNotFound":
                listing.turn(None, is_empty=True)
                return []
            raise self._failure_of(answer)
        page = answer.next_page
        if page is not None and origin(page) != origin(self._endpoint):
            raise HubError(HubFailure.REFUSED, "the next page of a listing is elsewhere")
        found = list(files(parsed(answer)))
        listing.turn(page, is_empty=not found)
        return found

    async def grant(self, scope: Scope) -> Grant:
        """Return access to the contents.

        Raises:
            HubError: It cannot be done.
        """
        answer = await self._json("GET", f"{self._bucket_url()}/xet-{scope}-token")
        return grant_of(answer, self._endpoint)

    async def batch(self, operations: Sequence[Mapping[str, object]]) -> dict[str, str]:
        """Carry out up to `MAX_OPERATIONS` operations; return path → reason of those that failed.

        A request without an answer is not sent again: it may take effect late, after something
        newer.

        Raises:
            HubError: None was carried out; or, `HubError.is_ambiguous`, that is not known.
        """
        answer = await self._send(
            "POST",
            f"{self._bucket_url()}/batch",
            body=b"".join(json.dumps(operation).encode() + b"\n" for operation in operations),
            is_idempotent=False,
            accept=frozenset({422}),
        )
        try:
            failed = refusals(parsed(answer), self._token)
        except HubError as error:  # it was done, or it was not
            raise HubError(error.failure, error.reason, is_ambiguous=True) from None
        if answer.status == 422 and not failed:
            raise self._failure_of(answer)
        return failed

    # -- requests --------------------------------------------------------------------------------

    def _new_headers(self) -> dict[str, str]:
        name, _, version = self._product.partition("/")
        headers: dict[str, str] = import_module("huggingface_hub.utils").build_hf_headers(
            # False is nobody; None would be whoever is logged in.
            token=False if self._token is None else self._token,
            library_name=name,
            library_version=version,
        )
        headers["accept-encoding"] = "gzip, deflate"
        return headers

    def _has_new_token(self) -> bool:
        token = self._find_token()
        if token == self._token:
            return False
        self._token = token
        self._headers = self._new_headers()
        return True

    def _bucket_url(self) -> str:
        return f"{self._endpoint}/api/buckets/{self._bucket_id}"

    async def _json(self, method: str, url: str, body: object = None) -> Any:
        return parsed(await self._send(method, url, body=body))

    async def _send(
        self,
        method: str,
        url: str,
        *,
        body: object = None,
        is_idempotent: bool = True,
        accept: frozenset[int] = frozenset(),
    ) -> Answer:
        """Send a request, again if that may help, and return the answer: 2xx, or one to accept."""
        kind = {}
        if isinstance(body, bytes):
            kind = {"Content-Type": "application/x-ndjson"}
        elif body is not None:
            kind = {"Content-Type": "application/json"}
            body = json.dumps(body).encode()
        ends = time.monotonic() + self._patience_s
        attempt = 0
        while True:
            await self._pause(ends)
            attempt += 1
            answer = await self._try(method, url, {**self._headers, **kind}, body, ends)
            if isinstance(answer, HubError):
                error = answer
            else:
                self.retries.heed(answer.headers)
                if answer.is_success or answer.status in accept:
                    self.retries.succeeded()
                    return answer
                error = self._failure_of(answer)
                if error.is_transient and time.monotonic() + self.retries.pause_s > ends:
                    error = self._asked_to_wait()
            if error.failure is HubFailure.UNAUTHORIZED and self._has_new_token():
                continue
            delay_s = self.retries.delay_s(attempt)
            if (
                not error.is_transient
                or (error.is_ambiguous and not is_idempotent)
                or attempt == _ATTEMPTS
                or self._closing
                or time.monotonic() + max(delay_s, self.retries.pause_s) > ends
                or not self.retries.take()
            ):
                if attempt > 1:
                    error.reason += f" (attempt {attempt})"
                raise error
            await anyio.sleep(delay_s)

    async def _pause(self, ends: float) -> None:
        while pause_s := self.retries.pause_s:
            if self._closing or time.monotonic() + pause_s > ends:
                raise self._asked_to_wait()
            await anyio.sleep(pause_s)

    def _asked_to_wait(self) -> HubError:
        pause_s = self.retries.pause_s
        return HubError(
            HubFailure.BUSY, f"the Hub asked to wait for {pause_s:.0f} s more (rate limit)"
        )

    async def _try(
        self, method: str, url: str, headers: Mapping[str, str], content: object, ends: float
    ) -> Answer | HubError:
        """Return the answer to one request, or why there is none."""
        self.requests += 1
        try:
            with anyio.fail_after(max(0.0, ends - time.monotonic())):
                async with self._turns:
                    return await self._exchange(method, url, headers, content)
        except HubError as error:
            error.is_ambiguous = True  # of a kind that no server gives without having done it
            return error
        except TimeoutError:
            late = f"no answer within {self._patience_s:g} s"
            return HubError(HubFailure.UNREACHABLE, late, is_ambiguous=True)
        except (self._vendor.ConnectError, self._vendor.ConnectTimeout) as raised:
            reason = f"cannot connect to {self._endpoint}: {shown(raised)}"
            return HubError(HubFailure.UNREACHABLE, reason, is_transient=True)
        except (self._vendor.HTTPError, OSError) as raised:  # OSError: offline mode
            return HubError(
                HubFailure.UNREACHABLE, shown(raised), is_ambiguous=True, is_transient=True
            )
        except self._vendor.InvalidURL as raised:  # of a page that the Hub has named
            return HubError(HubFailure.REFUSED, shown(raised))

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], content: object
    ) -> Answer:
        """Send a request, follow redirects as long as they stay with the Hub, read the answer.

        Raises:
            HubError: It leads elsewhere, or is none that we take.
            Exception: The vendor's.
        """
        request = self._http.build_request(method, url, headers=headers, content=content)
        for _ in range(_MOST_REDIRECTS):
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                request = response.next_request
                if request is None:
                    return await read(response)
            finally:
                await response.aclose()
            if origin(str(request.url)) != origin(self._endpoint):
                raise HubError(HubFailure.REFUSED, "the Hub redirects to another server")
        raise HubError(HubFailure.REFUSED, f"more than {_MOST_REDIRECTS} redirects in a row")

    def _failure_of(self, answer: Answer) -> HubError:
        return failure_of(answer, self._bucket_id, self._token)


def _as_it_is(request: Any) -> Any:
    return request
