"""How long tests wait."""

LONG = 600  # s, for a condition that comes to be: a bound for a broken program, not for a slow machine
