"""How numbers are written: as many digits as the error leaves meaning, one notation for a row.

A value with an error keeps two digits of the error, and no number fewer than two of its own: an error that
is larger than the number, as the upper one of a logarithmic interval, would leave 0. Seven digits are enough;
a number that would so become a whole one that its error excludes is written by its distance, 1-2e-12. An
exact value keeps four. Numbers below
1 are written without the leading zero, very large and very small ones by a power of ten.
"""

import math
import re
from collections.abc import Sequence

EXACT_DIGITS = 4
ERROR_DIGITS = 2
MOST_DIGITS = 7
PLAIN = (1e-3, 1e6)

HELD = "\ue000"
"""Stands for a blank at which a line is not broken."""

_WHOLE = re.compile(
    r"([\[(][^\s()\[\]]+,(?= [^\s()\[\]]+[\])])|\d(?= (?:%|\+-|\[[-+.\di]))|(?:[<>]=|[+]-)(?= [-.\d])) "
)


def held(text: str) -> str:
    """A text in which a number with its interval, ``.3 [.2, .4]``, error, bound or percent is one word."""
    return _WHOLE.sub(rf"\1{HELD}", text)


def freed(text: str) -> str:
    """A line of such a text as it is shown."""
    return text.replace(HELD, " ")


def figures(values: Sequence[float], error: float) -> list[str]:
    """Numbers in one notation, rounded at the second digit of ``error``; each keeps two digits of its own.

    Args:
        values: What is written.
        error: Width within which they are known, in their unit; 0 or not finite: they are exact.
    """
    sizes = [abs(v) for v in values if math.isfinite(v) and v != 0]
    power = math.floor(math.log10(max(sizes))) if sizes else 0
    if not (math.isfinite(error) and error > 0):
        return [exact(v) for v in values]
    # of an error of 9.96, which is 10 in two digits, the last digit that counts is the ones
    wanted = ERROR_DIGITS - 1 - math.floor(math.log10(float(f"{error:.{ERROR_DIGITS - 1}e}")))
    decimals = min(wanted, MOST_DIGITS - 1 - power)
    return [_near_whole(v, decimals, error) or _kept(v, decimals, power) for v in values]


def _near_whole(value: float, decimals: int, error: float) -> str:
    """A number by its distance from the whole one that rounding would make of it against its error, or ""."""
    if not math.isfinite(value) or round(value) == 0 or decimals <= 0:
        return ""
    gap = value - round(value)
    lost = abs(gap) > error and round(value, decimals) == round(value)
    return f"{round(value)}{gap:+.{ERROR_DIGITS - 1}e}".replace("e-0", "e-") if lost else ""


def _kept(value: float, decimals: int, power: int) -> str:
    """A number in the notation of its row, or in its own where that would keep fewer than two digits."""
    if not math.isfinite(value) or value == 0:
        return _written(value, decimals, power)
    own = math.floor(math.log10(abs(value)))
    least = ERROR_DIGITS - 1 - own
    return _written(value, decimals, power) if decimals >= least else _written(value, least, own)


def exact(value: float) -> str:
    """A number known exactly: four digits, trailing zeros dropped; whole numbers in full."""
    if not math.isfinite(value) or value == 0:
        return _written(value, 0, 0)
    if value == int(value) and abs(value) < PLAIN[1]:
        return str(int(value))
    power = math.floor(math.log10(abs(value)))
    text = _written(value, EXACT_DIGITS - 1 - power, power)
    mantissa, mark, exponent = text.partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + exponent


def _written(value: float, decimals: int, power: int) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    rounded = round(value, decimals)
    power += int(abs(rounded) >= 10.0 ** (power + 1))  # 9.9996 is 10.00, by a power of ten 1.000
    size = 10.0**power
    if size == 0:  # below the least power of ten that a float holds
        return f"{value:.0e}"
    if not PLAIN[0] <= size < PLAIN[1]:
        return f"{_short(rounded / size, max(decimals + power, 0))}e{power}"
    return _short(rounded, max(decimals, 0))


def _short(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits.strip("0."):
        sign = ""
    return sign + (digits[1:] if digits.startswith("0.") else digits)
