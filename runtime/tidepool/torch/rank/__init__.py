"""One rank of an elastic training: the session, the loop around a step, and the moves between two steps.

Scripts import `tidepool.torch`; the compatibility layers may call the modules here.
"""
