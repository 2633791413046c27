"""Policies of an instance group: how many slots each of its jobs gets, from what the jobs ask for.

The division among groups (`sharing/`), previews and forecasts call it. Nothing here knows which slots there are.
"""
