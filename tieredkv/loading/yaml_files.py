"""YAML as plain data; the only import of PyYAML."""

from __future__ import annotations

from collections.abc import Hashable

import yaml

__all__ = ["parse"]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a key that stands twice in a mapping is refused."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what ``<<`` refers to; what stands here goes before it, but once."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # else the base class refuses it
                if key in seen:
                    raise ValueError(
                        f"{key!r} stands twice in the mapping that begins in line "
                        f"{node.start_mark.line + 1}: remove one"
                    )
                seen.add(key)
        super().flatten_mapping(node)


def parse(text: str) -> object:
    """Return what a YAML document says.

    Raises:
        ValueError: It is not one.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}" if mark else ""
        raise ValueError(f"{error.problem or 'out of form'}{place}") from None
    except yaml.YAMLError:
        raise ValueError("it holds characters that YAML does not allow") from None
