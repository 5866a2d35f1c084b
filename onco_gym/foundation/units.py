"""Units of time that more than one room converts between."""

WEEKS_PER_YEAR = 52.1775
"""Of the Gregorian calendar: 365.2425 days."""
WEEKS_PER_MONTH = WEEKS_PER_YEAR / 12
