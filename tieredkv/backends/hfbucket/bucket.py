"""An open bucket: everything that reads and writes have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from tieredkv.backends._workers import Workers
from tieredkv.backends.hfbucket.grants import Grants
from tieredkv.backends.hfbucket.handle import Handle
from tieredkv.backends.hfbucket.ledger import Ledger
from tieredkv.backends.hfbucket.lookups import Answer, Lookups
from tieredkv.backends.hfbucket.metadata import MetadataCache
from tieredkv.clients.hub import HubClient
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.clients.xet import XetClient
from tieredkv.errors import TierError, TierFullError, TierUnavailableError

__all__ = ["Bucket", "BucketAccess", "Troubles"]

_KINDS: Final[dict[HubFailure, type[TierError]]] = {
    HubFailure.BUSY: TierUnavailableError,
    HubFailure.UNREACHABLE: TierUnavailableError,
    HubFailure.QUOTA: TierFullError,
}
_REMEDIES: Final = {
    HubFailure.NO_BUCKET: "create it, pass create_bucket=True, or check what the token may see",
    HubFailure.UNAUTHORIZED: "check the token",
    HubFailure.FORBIDDEN: "give the token the right to do this",
    HubFailure.QUOTA: "free space, or buy more",
}


class Troubles:
    """What has failed lately, by operation, and what users see of it."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._reasons: dict[str, str] = {}

    @property
    def reason(self) -> str:
        """In words; empty if all is well."""
        return "; ".join(self._reasons.values())

    def passed(self, operation: str) -> None:
        """Note that an operation has worked."""
        self._reasons.pop(operation, None)

    def mapped(self, operation: str, error: HubError) -> TierError:
        """Note a failure of the Hub, and return what users see of it."""
        reason = error.reason
        if remedy := _REMEDIES.get(error.failure):
            reason = f"{reason}: {remedy}"
        return self._noted(_KINDS.get(error.failure, TierError)(self._tier, operation, reason))

    def transfer(self, operation: str, reason: str) -> TierError:
        """Note that contents could not be moved, and return what users see of it."""
        return self._noted(TierUnavailableError(self._tier, operation, reason))

    def defect(self, operation: str, error: BaseException) -> TierError:
        """Return what users see of an exception that is not the medium's."""
        return TierError(self._tier, operation, f"{type(error).__name__}: {error}")

    def _noted(self, error: TierError) -> TierError:
        self._reasons[error.operation] = str(error)
        return error


@attrs.frozen
class BucketAccess:
    """Who we are at the Hub, and who can read the bucket.

    Attributes:
        user: Whose token it is; None: anonymous.
        role: What the token may do, as the Hub calls it: ``"read"``, ``"write"``, …; or empty.
        is_private: Whether the bucket is; None if there is none, or the token may not see it.
    """

    user: str | None
    role: str
    is_private: bool | None


@attrs.frozen(eq=False, kw_only=True)
class Bucket:
    """The parts of an open backend, on its event loop."""

    handle: Handle
    hub: HubClient
    cache: MetadataCache
    ledger: Ledger
    lookups: Lookups
    grants: Grants
    downloads: Workers[XetClient]
    uploads: Workers[XetClient]
    troubles: Troubles

    async def find(
        self, paths: Iterable[str], *, fresh: bool
    ) -> tuple[dict[str, Answer], set[str]]:
        """Return what is at paths, and which of it is only remembered."""
        wanted = dict.fromkeys(paths)
        known = {} if fresh else self.lookups.known(wanted)
        asked = await self.lookups.ask(path for path in wanted if path not in known)
        return {**known, **asked}, set(known)

    async def access(self) -> BucketAccess:
        """Return who we are, and who can read the bucket.

        Raises:
            TierError: The Hub does not say.
        """
        try:
            user, role = await self.hub.whoami()
            try:
                is_private = (await self.hub.bucket_info()).is_private
            except HubError as error:
                if error.failure is not HubFailure.NO_BUCKET:
                    raise
                return BucketAccess(user, role, None)
        except HubError as error:
            raise self.troubles.mapped("access", error) from None
        self.troubles.passed("access")
        return BucketAccess(user, role, is_private)

    def figures(self, capacity_bytes: int | None) -> dict[str, object]:
        """Return what this process knows, for a status."""
        return {
            "type": "hfbucket",
            "bucket_id": self.handle.bucket_id,
            "object_prefix": self.handle.prefix,
            "stored_object_count": len(self.ledger),
            "current_size_bytes": self.ledger.nbytes,
            "max_capacity_bytes": capacity_bytes or 0,
            "usage_fraction": self.ledger.nbytes / capacity_bytes if capacity_bytes else -1.0,
            "unsettled_count": len(self.ledger.unsettled),
            "metadata_entries": len(self.cache),
            "hub_requests": self.hub.requests,
            "hub_retries": self.hub.retries.granted,
            "downloads_running": self.downloads.num_running,
            "uploads_running": self.uploads.num_running,
        }
