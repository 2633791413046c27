"""Stacks of a training's ranks: read from the answers of its hosts, folded, and said in one sentence.

Its page, its REST address and `tidepool stacks` show them.
"""
