"""The tiers of a store: L1, the chain of L2 tiers, and what moves values between them.

What only a store that is open needs is imported when one is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tieredkv.deferred import imported

if TYPE_CHECKING:
    from tieredkv.tiers.assembly import Assembly
    from tieredkv.tiers.buffers import flat_target, flat_value
    from tieredkv.tiers.framing import Framing
    from tieredkv.tiers.held import Lookup
    from tieredkv.tiers.puts import NewValue

__all__ = ["Assembly", "Framing", "Lookup", "NewValue", "flat_target", "flat_value"]

_MODULES = {"Assembly": "assembly", "Framing": "framing", "Lookup": "held", "NewValue": "puts"}


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _MODULES, "buffers")
