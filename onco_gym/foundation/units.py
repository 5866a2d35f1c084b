"""Units of time that several rooms use."""

WEEKS_PER_YEAR = 52.1775
"""A year of the Gregorian calendar has 365.2425 days."""
WEEKS_PER_MONTH = WEEKS_PER_YEAR / 12
