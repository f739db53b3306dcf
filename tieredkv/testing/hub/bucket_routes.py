"""The Hub's API about buckets as a whole: create, describe, list, change, delete, tokens."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import attrs

from tieredkv.testing.hub.accounts import Account, Accounts, Scope, XetTokens, anonymous_refused
from tieredkv.testing.hub.buckets import Bucket, Buckets
from tieredkv.testing.hub.exchange import Request, Response, refusal

__all__ = ["BucketAccess", "BucketRoutes", "Site", "next_page"]

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


@attrs.frozen(kw_only=True)
class Site:
    """What answers say of the Hub itself.

    Attributes:
        local_cas: Address of a CAS that is a directory; None: it is a part of the Hub.
        page_size: Most items of a page of a listing.
    """

    local_cas: str | None
    page_size: int

    def cas_url(self, request: Request) -> str:
        """Return the address of the CAS for who asks."""
        return self.local_cas or f"{request.origin}/cas"


class BucketAccess:
    """Finds buckets for those who may see them, and says no as the Hub does."""

    def __init__(self, buckets: Buckets, accounts: Accounts) -> None:
        self.buckets: Buckets = buckets
        self._accounts = accounts

    def readable(self, request: Request, bucket_id: str) -> Bucket:
        """Return a bucket.

        Raises:
            AnswerError: It does not exist, or is private to others, who are told the same (404);
                who gives no name is told so (401); the token is not valid (401).
        """
        account = self._accounts.of(request)
        bucket = self.buckets.get(bucket_id)
        if bucket is not None and self.shows(bucket, account):
            return bucket
        if account is None:
            raise anonymous_refused()
        raise refusal(HTTPStatus.NOT_FOUND, "Repository not found", "RepoNotFound")

    def allows(self, request: Request, bucket_id: str) -> bool:
        """Whether `readable` would return a bucket."""
        bucket = self.buckets.get(bucket_id)
        return bucket is not None and self.shows(bucket, self._accounts.of(request))

    def writable(self, request: Request, bucket_id: str) -> Bucket:
        """Return a bucket that the account may change.

        Raises:
            AnswerError: As `readable`; or the account may read only (403).
        """
        bucket = self.readable(request, bucket_id)
        self.require_owner(request, bucket.namespace)
        return bucket

    def require_owner(self, request: Request, namespace: str) -> None:
        """Let pass who may write in a namespace.

        Raises:
            AnswerError: The account may not (403), or there is none (401).
        """
        account = self._accounts.known(request)
        if not (account.owns(namespace) and account.can_write):
            raise refusal(
                HTTPStatus.FORBIDDEN,
                "You don't have the required permissions to perform this action.",
            )

    @staticmethod
    def shows(bucket: Bucket, account: Account | None) -> bool:
        """Whether an account (None: anonymous) may know that a bucket exists."""
        return not bucket.is_private or (account is not None and account.owns(bucket.namespace))


class BucketRoutes:
    """Requests that concern a bucket as a whole.

    Args:
        access: The buckets, and who may use them.
        accounts: The accounts.
        tokens: Issues tokens for the CAS.
        site: Where all this is.
    """

    def __init__(
        self,
        access: BucketAccess,
        accounts: Accounts,
        tokens: XetTokens,
        site: Site,
    ) -> None:
        self._access = access
        self._buckets = access.buckets
        self._accounts = accounts
        self._tokens = tokens
        self._site = site

    def whoami(self, request: Request) -> Response:
        """``GET /api/whoami-v2``."""
        account = self._accounts.known(request)
        role = "write" if account.can_write else "read"
        token = {"type": "access_token", "accessToken": {"displayName": "local", "role": role}}
        return Response.of_json({"type": "user", "name": account.user, "orgs": [], "auth": token})

    def list_buckets(self, request: Request, namespace: str) -> Response:
        """``GET /api/buckets/{namespace}``."""
        account = self._accounts.of(request)
        namespace = self._resolve(request, namespace)
        search, cursor = request.parameter("search"), request.parameter("cursor")
        found = sorted(
            (
                bucket
                for bucket in self._buckets
                if bucket.namespace == namespace
                and search in bucket.id
                and bucket.id >= cursor
                and self._access.shows(bucket, account)
            ),
            key=lambda bucket: bucket.id,
        )
        page, rest = found[: self._site.page_size], found[self._site.page_size :]
        url = f"{request.origin}/api/buckets/{quote(namespace)}?search={quote(search)}"
        return Response.of_json(
            [bucket.describe() for bucket in page],
            headers=next_page(url, rest[0].id if rest else None),
        )

    def create(self, request: Request, namespace: str, name: str) -> Response:
        """``POST /api/buckets/{namespace}/{name}``: public unless the body says otherwise."""
        namespace = self._resolve(request, namespace)
        self._access.require_owner(request, namespace)
        for part in (namespace, name):
            if _NAME.fullmatch(part) is None:
                raise refusal(HTTPStatus.BAD_REQUEST, f"{part!r} is not a name for a bucket")
        is_private = _is_private(request)
        bucket_id = f"{namespace}/{name}"
        # The client reads the address from a refusal, too, when the bucket may exist.
        answer = {"url": f"{request.origin}/buckets/{bucket_id}", "name": bucket_id}
        if self._buckets.get(bucket_id) is not None:
            message = "You already created this bucket repo"
            return Response.of_json(
                answer | {"error": message},
                status=HTTPStatus.CONFLICT,
                headers={"X-Error-Message": message},
            )
        self._buckets.create(bucket_id, is_private=is_private)
        return Response.of_json(answer)

    def describe(self, request: Request, namespace: str, name: str) -> Response:
        """``GET /api/buckets/{namespace}/{name}``."""
        return Response.of_json(self._access.readable(request, f"{namespace}/{name}").describe())

    def delete(self, request: Request, namespace: str, name: str) -> Response:
        """``DELETE /api/buckets/{namespace}/{name}``."""
        self._buckets.delete(self._access.writable(request, f"{namespace}/{name}").id)
        return Response(HTTPStatus.OK)

    def change(self, request: Request, namespace: str, name: str) -> Response:
        """``PUT /api/buckets/{namespace}/{name}/settings``."""
        bucket = self._access.writable(request, f"{namespace}/{name}")
        is_private = request.json().get("private")
        if not isinstance(is_private, bool):
            raise refusal(HTTPStatus.BAD_REQUEST, "private must be true or false")
        self._buckets.set_private(bucket.id, is_private=is_private)
        return Response.of_json({"private": is_private})

    def move(self, request: Request) -> Response:
        """``POST /api/repos/move``, for buckets."""
        wanted = request.json()
        source, target = wanted.get("fromRepo", ""), wanted.get("toRepo", "")
        namespace, _, name = target.partition("/")
        if wanted.get("type") != "bucket" or not (namespace and name):
            raise refusal(HTTPStatus.BAD_REQUEST, "only buckets are moved here")
        bucket = self._access.writable(request, source)
        self._access.require_owner(request, namespace)
        if self._buckets.get(target) is not None:
            raise refusal(HTTPStatus.CONFLICT, f"{target} exists")
        self._buckets.move(bucket.id, target)
        return Response(HTTPStatus.OK)

    def issue_token(self, request: Request, namespace: str, name: str, scope: Scope) -> Response:
        """``GET /api/buckets/{namespace}/{name}/xet-{scope}-token``.

        hf_xet wants the token in the body; older huggingface_hub took it from the headers.
        """
        bucket_id = f"{namespace}/{name}"
        if scope == "write":
            self._access.writable(request, bucket_id)
        else:
            self._access.readable(request, bucket_id)
        token, cas_url = self._tokens.issue(scope), self._site.cas_url(request)
        return Response.of_json(
            {"accessToken": token.text, "exp": token.expires_at_s, "casUrl": cas_url},
            headers={
                "X-Xet-Access-Token": token.text,
                "X-Xet-Token-Expiration": str(token.expires_at_s),
                "X-Xet-Cas-Url": cas_url,
            },
        )

    def _resolve(self, request: Request, namespace: str) -> str:
        """Only lists and creations know ``me``."""
        return self._accounts.known(request).user if namespace == "me" else namespace


def _is_private(request: Request) -> bool:
    """Read what a creation says of visibility, as newer and older clients write it."""
    wanted = request.json()
    visibility = wanted.get("visibility", "private" if wanted.get("private") is True else "public")
    if visibility not in ("public", "private"):
        raise refusal(HTTPStatus.BAD_REQUEST, f"there is no visibility {visibility!r}")
    return bool(visibility == "private")


def next_page(url: str, cursor: str | None) -> dict[str, str]:
    """Return the header that leads to the next page, if there is one."""
    if cursor is None:
        return {}
    return {"Link": f'<{url}&cursor={quote(cursor, safe="")}>; rel="next"'}
