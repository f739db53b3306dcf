"""Who may do what: access tokens of the Hub, short-lived tokens of the CAS."""

from __future__ import annotations

import secrets
import threading
import time
from http import HTTPStatus
from typing import Literal, TypeAlias

import attrs

from tieredkv.testing.hub.exchange import AnswerError, Request, Response, refusal

__all__ = [
    "Account",
    "Accounts",
    "Scope",
    "XetToken",
    "XetTokens",
    "anonymous_refused",
    "new_access_token",
]

Scope: TypeAlias = Literal["read", "write"]


def new_access_token() -> str:
    """Return a random token that looks like the Hub's."""
    return f"hf_{secrets.token_hex(16)}"


@attrs.frozen(kw_only=True)
class Account:
    """What a token stands for.

    Attributes:
        user: Name, and the namespace it owns.
        can_write: Without it the token is read-only.
        is_admin: Owns every namespace, so that tests need not declare organizations.
    """

    user: str
    can_write: bool = True
    is_admin: bool = False

    def owns(self, namespace: str) -> bool:
        """Whether buckets of `namespace` belong to this account."""
        return self.is_admin or self.user == namespace


class Accounts:
    """The valid access tokens. Any thread may call."""

    def __init__(self, token: str, user: str) -> None:
        self._lock = threading.Lock()
        self._accounts = {token: Account(user=user, is_admin=True)}

    def add(self, token: str, account: Account) -> None:
        """Let `token` stand for `account`."""
        with self._lock:
            self._accounts[token] = account

    def revoke(self, token: str) -> None:
        """Refuse `token` from now on; an unknown one is refused already."""
        with self._lock:
            self._accounts.pop(token, None)

    def rotate(self, old: str, new: str) -> None:
        """Move the account of `old` to `new`."""
        with self._lock:
            self._accounts[new] = self._accounts.pop(old)

    def find(self, token: str | None) -> Account | None:
        """Return the account of a token; None if there is none."""
        with self._lock:
            return self._accounts.get(token) if token is not None else None

    def of(self, request: Request) -> Account | None:
        """Return who asks; None is anonymous.

        Raises:
            AnswerError: The token is not valid (401); it never counts as anonymous.
        """
        account = self.find(request.bearer)
        if account is None and request.bearer is not None:
            # The client compares this very text.
            raise refusal(HTTPStatus.UNAUTHORIZED, "Invalid credentials in Authorization header")
        return account

    def known(self, request: Request) -> Account:
        """Return who asks.

        Raises:
            AnswerError: Nobody that we know (401).
        """
        account = self.of(request)
        if account is None:
            raise anonymous_refused()
        return account


def anonymous_refused() -> AnswerError:
    """Return the Hub's answer to somebody without a token who would need one."""
    return refusal(HTTPStatus.UNAUTHORIZED, "Invalid username or password.")


@attrs.frozen
class XetToken:
    """A token for the CAS.

    Attributes:
        text: The token.
        expires_at_s: Unix time.
    """

    text: str
    expires_at_s: int


class XetTokens:
    """Tokens that the Hub issues and the CAS honours. Any thread may call.

    Attributes:
        ttl_s: Life of those issued from now on, in seconds.
    """

    def __init__(self, ttl_s: int) -> None:
        self.ttl_s = ttl_s
        self._lock = threading.Lock()
        self._issued: dict[str, tuple[Scope, int]] = {}

    def issue(self, scope: Scope) -> XetToken:
        """Return a new token."""
        now_s = int(time.time())
        token = XetToken(secrets.token_urlsafe(18), now_s + self.ttl_s)
        with self._lock:
            self._issued = {t: kept for t, kept in self._issued.items() if kept[1] > now_s}
            self._issued[token.text] = (scope, token.expires_at_s)
        return token

    def require(self, request: Request, scope: Scope) -> None:
        """Let a request pass.

        Raises:
            AnswerError: Its token is unknown or expired (401), or does not reach far enough (403).
        """
        with self._lock:
            issued, expires_at_s = self._issued.get(request.bearer or "", ("read", 0))
        if expires_at_s <= time.time():
            raise AnswerError(Response(HTTPStatus.UNAUTHORIZED, b"unauthorized"))
        if scope == "write" and issued != "write":
            raise AnswerError(Response(HTTPStatus.FORBIDDEN, b"forbidden"))

    def expire_all(self) -> None:
        """Honour none of those issued so far."""
        with self._lock:
            self._issued.clear()
