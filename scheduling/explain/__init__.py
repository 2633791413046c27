"""Explanations: the reason for what each job gets, as a code with the figures of the rule that decided.

`schedule.py` calls it.
"""
