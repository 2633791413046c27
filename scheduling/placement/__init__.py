"""Placement: which slots each job keeps, claims and gives back, once the number of its slots is decided.

`schedule.py` calls it, and explanations and previews read its results.
"""
