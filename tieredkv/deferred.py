"""Names that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["deferred"]


def deferred(
    namespace: dict[str, Any], modules: Mapping[str, str], others: str
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose ``__all__`` is defined elsewhere.

    Args:
        namespace: The module's ``globals()``.
        modules: Name → module that defines it, in the same package.
        others: Module of all names that are not in `modules`.
    """

    def find(name: str) -> Any:
        if name not in namespace["__all__"]:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        module = import_module(f"{namespace['__package__']}.{modules.get(name, others)}")
        value = namespace[name] = getattr(module, name)
        return value

    return find
