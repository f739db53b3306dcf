"""What may be configured: read off the constructors, so that no setting is listed twice."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from tieredkv.config import choice, nearest, number
from tieredkv.errors import ConfigError
from tieredkv.loading.environment import Expanded, joined

__all__ = ["Field", "Given", "construct", "fields_of", "fit", "given", "refuse_unknown", "tag_of"]

ResultT = TypeVar("ResultT")

SECRETS: Final = frozenset({"address", "password", "remote_url", "token", "valkey_password"})
"""Fields whose value no message repeats; foreign names, too."""

_WORDS: Final = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip
_DIGITS: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_BEGINNING: Final = re.compile(r"\w+")
_SPOKEN: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list of texts",
}


@attrs.frozen
class Given:
    """A value as it was given.

    Attributes:
        value: Plain data.
        path: Where it stands, for messages: ``l2[1].num_workers``.
        original: What it was made of; None for itself.
    """

    value: Any = attrs.field(repr=False)
    path: str
    original: Any = attrs.field(default=None, repr=False)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that are part of it, with what they held."""
        written = self.value if self.original is None else self.original
        texts = written if isinstance(written, list) else [written]
        parts = [text.parts for text in texts if isinstance(text, Expanded)]
        return {name: held for part in parts for name, held in part.items()}

    @property
    def name(self) -> str:
        """How the field is called where it stands."""
        return self.path.rpartition(".")[2]


@attrs.frozen
class Field:
    """A setting of a constructor.

    Attributes:
        arms: What it may be: classes and literals.
        default: `inspect.Parameter.empty` if it must be given.
    """

    arms: tuple[Any, ...]
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def is_size(self) -> bool:
        """Whether it counts bytes."""
        return {int, str} <= set(self.arms)


def fields_of(target: Callable[..., Any], *, without: Iterable[str] = ()) -> dict[str, Field]:
    """Return the settings of a class, or of a function, that plain data can express."""
    if isinstance(target, type) and attrs.has(target):
        hints = {name: _attrs_hint(target, name) for name in attrs.fields_dict(target)}
    else:
        function = inspect.unwrap(getattr(target, "__init__", target))
        annotations = {n: hint for n, hint in function.__annotations__.items() if n not in without}
        hints = get_type_hints(
            SimpleNamespace(__annotations__=annotations), globalns=function.__globals__
        )
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        arms = _arms(hints.get(name, object))
        if name not in without and object not in arms:
            found[name] = Field(arms, parameter.default)
    return found


def _attrs_hint(target: Any, name: str) -> Any:
    """Return what a field takes: what its converter does, if that says."""
    converter = attrs.fields_dict(target)[name].converter
    if inspect.isfunction(converter):
        first = next(iter(inspect.signature(converter).parameters))
        taken = get_type_hints(converter)[first]
        if taken is not object:
            return taken
    return get_type_hints(target)[name]


def _arms(hint: Any) -> tuple[Any, ...]:
    """Flatten a union: classes, and the values of literals."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(arm for part in get_args(hint) for arm in _arms(part))
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (get_origin(hint) or hint,)


def tag_of(kind: type) -> str:
    """Return how a configuration names a class: ``WriteThrough`` is ``write_through``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def given(value: object, path: str) -> dict[str, Given]:
    """Return the fields of a mapping.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} must be a mapping of fields, not {spoken_type(value)}")
    return {name: Given(item, joined(path, name)) for name, item in value.items()}


def refuse_unknown(found: Mapping[str, Given], known: Iterable[str]) -> None:
    """Refuse what nobody knows.

    Raises:
        ConfigError: There is a field that is not one of `known`; the nearest is named.
    """
    names = sorted(known)
    for name, item in found.items():
        if name not in names:
            hint = nearest(name, names) or f": there are {', '.join(names)}"
            raise ConfigError(f"{item.path} is no field{hint}")


def fit(item: Given, field: Field) -> Any:
    """Return a value that the constructor's field takes, with its type checked.

    Raises:
        ConfigError: It is of another type.
    """
    value, arms = item.value, field.arms
    if isinstance(value, Expanded):
        value = _read_text(value, arms)
    classes = [arm for arm in arms if isinstance(arm, type)]
    literals = [arm for arm in arms if not isinstance(arm, type)]
    nested = {tag_of(arm): arm for arm in classes if attrs.has(arm)}
    if any(type(value) is type(arm) and value == arm for arm in (*literals, *_none(arms))):
        return value
    if nested and (isinstance(value, Mapping) or (isinstance(value, str) and value in nested)):
        return _nested(Given(value, item.path), nested)
    for arm in classes:
        if arm is float and isinstance(value, int | float) and not isinstance(value, bool):
            number(value, field=item.path, low=-1e300)
            return value
        if arm is bool or arm is int or arm is str:
            if isinstance(value, arm) and (arm is bool or not isinstance(value, bool)):
                return value
        elif arm in (os.PathLike, Path) and isinstance(value, str):
            return value
        elif _is_list(arm) and isinstance(value, list) and all(isinstance(v, str) for v in value):
            return [str(text) for text in value]
    if isinstance(value, str) and all(isinstance(arm, str) for arm in arms):
        choice(value, field=item.path, choices=literals)
    raise ConfigError(f"{item.path}{_shown(item)} must be {_spoken(arms, nested)}")


def _nested(item: Given, kinds: Mapping[str, type]) -> Any:
    plain = {"type": item.value} if isinstance(item.value, str) else item.value
    found = given(plain, item.path)
    tag = found.pop("type", None)
    if tag is None and len(kinds) > 1:
        raise ConfigError(f"{item.path}.type is missing: it is one of {', '.join(kinds)}")
    kind = next(iter(kinds.values()))
    if tag is not None:
        kind = kinds[choice(tag.value, field=tag.path, choices=tuple(kinds))]
    fields = fields_of(kind)
    refuse_unknown(found, fields)
    return construct(kind, fields, found, path=item.path)


def construct(
    kind: Callable[..., ResultT],
    fields: Mapping[str, Field],
    found: Mapping[str, Given],
    *,
    path: str,
) -> ResultT:
    """Call a constructor with house names; what it refuses is told by the path.

    Raises:
        ConfigError: A field is missing, or its value does not fit.
    """
    arguments = {}
    for name, field in fields.items():
        item = found.get(name)
        if item is not None and (item.value is not None or type(None) in field.arms):
            arguments[name] = fit(item, field)
        elif field.is_required:
            raise ConfigError(f"{path}.{name} is missing: it must be given")
    plain = {name: _plain(value) for name, value in arguments.items()}
    try:
        return kind(**plain)
    except ConfigError as error:
        message = str(error)
    for name, item in found.items():
        if item.variables:
            message = message.replace(f"{name}={plain.get(name)!r}", f"{name}={item.value!r}")
            message = _without_variables(message, item)
    beginning = _BEGINNING.match(message)
    name = beginning.group() if beginning else ""
    if name not in fields:
        raise ConfigError(f"{path}: {message}" if path else message)
    where = found[name].path if name in found else f"{path}.{name}" if path else name
    if where.rpartition(".")[2] == name:
        raise ConfigError(f"{where}{message[len(name) :]}")
    raise ConfigError(f"{where}: {message}")


def _without_variables(message: str, item: Given) -> str:
    """Show a variable's name instead of what it holds: that may be a secret."""
    for name, held in item.variables.items():
        for spelling in (held, repr(held)[1:-1]):
            if len(spelling) > 2:  # shorter ones are no secrets, and everywhere
                message = message.replace(spelling, f"${{{name}}}")
    return message


def _read_text(text: Expanded, arms: tuple[Any, ...]) -> Any:
    """Return what a text from the environment means, where a text alone means nothing."""
    if int in arms and _DIGITS.fullmatch(text):
        return int(text)
    if str in arms:
        return text
    if bool in arms and text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    if float in arms:
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _plain(value: Any) -> Any:
    return str.__str__(value) if isinstance(value, Expanded) else value


def _none(arms: tuple[Any, ...]) -> tuple[None, ...]:
    return (None,) if type(None) in arms else ()


def _is_list(arm: Any) -> bool:
    return isinstance(arm, type) and issubclass(list, arm)


def _shown(item: Given) -> str:
    if item.name in SECRETS or isinstance(item.value, Mapping | list):
        return ""
    return f"={item.value!r:.80}"


def _spoken(arms: tuple[Any, ...], nested: Mapping[str, type]) -> str:
    words = [_SPOKEN.get(arm, "") for arm in arms if arm in _SPOKEN]
    if {int, str} <= set(arms):
        words = ["a size (bytes, or a text like '4GiB')"]
    if any(arm in (os.PathLike, Path) for arm in arms) and "a text" not in words:
        words.append("a path")
    if any(_is_list(arm) for arm in arms):
        words.append("a list of texts")
    words += [repr(arm) for arm in arms if not isinstance(arm, type)]
    if nested:
        words.append(f"a mapping of type {' or '.join(map(repr, nested))}")
    return " or ".join(words)


def spoken_type(value: object) -> str:
    """Return what a file's reader calls a type."""
    names = {"NoneType": "null", "dict": "a mapping", "list": "a list", "str": "a text"}
    kind = type(value).__name__
    return names.get("str" if isinstance(value, str) else kind, kind)
