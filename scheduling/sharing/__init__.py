"""Slots of the cluster as instance groups share them: entitlements, the pool of each group, and its decision.

`schedule.py`, placement and explanations call it.
"""
