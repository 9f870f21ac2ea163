"""Arguments as the library takes them. What is none raises ValueError: its name, what was got and what was wanted."""

import datetime
import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is not below the least."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        kind = "a whole number, " if number is None else ""
        raise ValueError(f"`{name}`: got {value!r}, wanted {kind}{least} or more")
    return number


def number(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> float:
    """A finite number in a range, its ends among them."""
    try:
        found = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and least <= found <= most):
        wanted = f"{least:g} or more" if most == math.inf else f"a number from {least:g} to {most:g}"
        raise ValueError(f"`{name}`: got {value!r}, wanted {wanted}")
    return found


def expect_unused(why: str, **options: tuple[Any, Any]) -> None:
    """Of every option what was given and what it is unless told. why: it has no effect."""
    for name, (value, usual) in options.items():
        if value is not usual and value != usual:
            raise ValueError(f"`{name}`: has no effect {why}")


def seconds(timeout: float | datetime.timedelta) -> float:
    """A time to wait."""
    try:
        number = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 1e9:
        raise ValueError(f"`timeout`: got {timeout!r}, wanted seconds above 0")
    return number


def word(name: str, value: Any) -> str:
    """As the command line would say it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, numbers.Number)):
        return str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ValueError(f"`{name}`: got {value!r}, wanted a word, a number, True or False, or a list of words")
