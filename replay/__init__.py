"""Replays of a window of the cluster's past under other rules ("What if").

Models, background worker, pages and API; the simulation is in `scheduling.replay`. Only `webapp` and tests use it.
"""
