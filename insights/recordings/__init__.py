"""Flame graphs and traces of a rank, for people: the state of the newest request, and what was recorded."""
