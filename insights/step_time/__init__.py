"""Why a training is as fast as it is: its ranks' time by cause, the sentence on it, and advice with a number.

The page of a training, its REST address and `tidepool why-slow` show them.
"""
