"""Communication among the ranks of a generation: process groups, sums of gradients, and the transfer of state.

`rank/` and `adaptive/` call it. No module here knows a coordinator.
"""
