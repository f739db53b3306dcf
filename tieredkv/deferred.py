"""Names that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["imported"]


def imported(namespace: dict[str, Any], name: str, modules: Mapping[str, str], others: str) -> Any:
    """Import a name of a module whose ``__all__`` is defined elsewhere; for its ``__getattr__``.

    Args:
        namespace: The module's ``globals()``, where the name is found from now on.
        name: The name.
        modules: Name → module that defines it, in the same package.
        others: Module of all names that are not in `modules`.

    Raises:
        AttributeError: There is no such name.
    """
    if name not in namespace["__all__"]:
        raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
    module = import_module(f"{namespace['__package__']}.{modules.get(name, others)}")
    value = namespace[name] = getattr(module, name)
    return value
