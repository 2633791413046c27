"""The time machine: a window of the cluster's past, played again under other rules.

Rows, process, pages and API; the simulation itself is in `scheduling.replay`. Only `webapp` and tests call it.
"""
