"""Walls around trainings: levels, the parts of a wall, and a hostile training that tries to get through it."""
