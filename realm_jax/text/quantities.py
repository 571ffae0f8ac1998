"""Quantities in running text, a number with its unit, by one bounded regular expression.

A unit of one letter must follow a space or a hyphen, since "5s" may be a plural.
"""

import re

_NUMBER = r"[0-9]{1,12}(?:,[0-9]{3}){0,4}(?:\.[0-9]{1,12})?"
_RANGE = rf"{_NUMBER}(?:\s?(?:[–-]|to|x|×|±)\s?{_NUMBER})?"
_SYMBOLS = """mm cm km nm µm μm in ft yd mi mg µg kg lb lbs oz ms ns µs sec min hr hrs Hz kHz MHz
GHz THz mV kV mA µA kW MW GW Wh kWh Pa kPa MPa GPa psi psf bar atm kJ MJ eV keV MeV GeV cal kcal
mph kph km/h m/s ft/s cm/s rad deg °C °F ml mL mol mM µM dB kB KB MB GB TB kbit Mbit rpm px °"""
_WORDS = """inch(?:es)? f(?:oo|ee)t yards? miles? met(?:er|re)s? kilomet(?:er|re)s?
millimet(?:er|re)s? centimet(?:er|re)s? grams? kilograms? pounds? ounces? tons? tonnes? acres?
hectares? lit(?:er|re)s? gallons? seconds? minutes? hours? days? weeks? months? years?
milliseconds? volts? amperes? amps? watts? kilowatts? megawatts? ohms? hertz degrees? radians?
joules? calories? knots? bits? bytes? percent per\\scent dollars? euros? cents? million billion"""
_LETTERS = "[msghVAWKJNlLCFΩ]"
_UNIT = "|".join(
    [
        *(re.escape(unit) for unit in sorted(_SYMBOLS.split(), key=len, reverse=True)),
        *sorted(_WORDS.split(), key=len, reverse=True),
    ]
)
_QUANTITY = re.compile(
    r"(?<![\w.,/+-])(?:"
    rf"[$£€¥]\s?{_NUMBER}(?:\s?(?:thousand|million|billion|[kmMB]n?\b))?"
    rf"|{_RANGE}\s?%"
    rf"|{_RANGE}[\s-]?(?:{_UNIT})(?!\w)"
    rf"|{_RANGE}[\s-]{_LETTERS}(?!\w)"
    r")"
)


def quantity_spans(text: str) -> list[tuple[int, int]]:
    """Character spans (start, stop) of the quantities in `text`, in order and without overlap."""
    return [match.span() for match in _QUANTITY.finditer(text)]
