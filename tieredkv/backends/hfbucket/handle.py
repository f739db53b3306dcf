"""Where a bucket is, who we are there, and how values are called in it."""

from __future__ import annotations

import os
import re
from typing import Final, Literal, Self
from urllib.parse import quote, unquote, urlsplit

import attrs

from tieredkv.errors import ConfigError

__all__ = ["Handle", "checked_endpoint", "find_token"]

_SCHEME: Final = "hf://buckets/"
_FORM: Final = "hf://buckets/NAMESPACE/BUCKET[/PREFIX]"
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_WHOEVER_ASKS: Final = "me"
_DOTS: Final = {".": "%2E", "..": "%2E%2E"}  # as paths they would be places


@attrs.frozen
class Handle:
    """A bucket and the directory of our values in it.

    Attributes:
        bucket_id: Namespace and name.
        prefix: Without slashes at its ends; empty for the top.
    """

    bucket_id: str
    prefix: str

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read ``hf://buckets/NAMESPACE/BUCKET[/PREFIX]``; blanks around and empty segments go.

        Raises:
            ConfigError: It has another form, or a segment with other characters than letters,
                digits, ``.``, ``_`` and ``-``, or one that begins with ``.``; or the namespace is
                ``me``.
        """
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"handle={text!r} must be a text like '{_FORM}'")
        text = text.strip()
        if not text.startswith(_SCHEME):
            raise ConfigError(f"handle={text!r} must begin with {_SCHEME!r}: {_FORM}")
        segments = [segment for segment in text[len(_SCHEME) :].split("/") if segment]
        if len(segments) < 2:
            raise ConfigError(f"handle={text!r} needs a namespace and a bucket: {_FORM}")
        for segment in segments:
            if _SEGMENT.fullmatch(segment) is None:
                raise ConfigError(
                    f"handle={text!r} has a segment {segment!r}: use letters, digits, '.', '_' and"
                    " '-', and no '.' at its beginning"
                )
        if segments[0] == _WHOEVER_ASKS:
            raise ConfigError(
                f"handle={text!r} has the namespace {_WHOEVER_ASKS!r}, which the Hub knows only"
                " where buckets are created and listed: give the name of your account or"
                " organisation"
            )
        return cls("/".join(segments[:2]), "/".join(segments[2:]))

    def path_of(self, name: str) -> str:
        """Return where the value of a wire name is: its own file, directly below the prefix.

        For the names of `ObjectKey` these are the paths of LMCache's multi-process adapter.
        """
        quoted = quote(name, safe="")
        quoted = _DOTS.get(quoted, quoted)
        return f"{self.prefix}/{quoted}" if self.prefix else quoted

    def name_of(self, path: str) -> str | None:
        """Return the wire name whose value is at `path`; None for a path that is not of ours."""
        start = f"{self.prefix}/" if self.prefix else ""
        if not path.startswith(start):
            return None
        try:
            name = unquote(path[len(start) :], errors="strict")
            return name if name and self.path_of(name) == path else None
        except UnicodeError:
            return None


def checked_endpoint(value: object) -> str | None:
    """Return an address of a Hub, or None for the default one.

    Raises:
        ConfigError: It is not one.
    """
    if value is None:
        return None
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        if parts and parts.scheme in ("http", "https") and parts.hostname and not parts.username:
            return parts.geturl().rstrip("/")
    except ValueError:
        pass
    raise ConfigError("endpoint must be an http or https address, without a user or password")


def find_token(token: str | Literal[False] | None, variable: str) -> str | None:
    """Return who we are: what the environment variable holds, else `token`; None is nobody.

    Never the login that huggingface_hub has saved: it may be another tenant's.

    Raises:
        ConfigError: There is neither.
    """
    if token is False:
        return None
    found = os.environ.get(variable, "").strip() or (token or "").strip()
    if not found:
        raise ConfigError(
            f"no token: set the environment variable {variable}, give token=..., or token=False"
            " for anonymous reading"
        )
    return found
