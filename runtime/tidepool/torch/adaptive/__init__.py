"""Adaptive batch sizes: measures of steps and of gradient noise, the choice of the batch, and learning rates for it.

`rank/` calls it, where a training asks for `Adaptive`.
"""
