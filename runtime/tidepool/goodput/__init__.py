"""Speed of a training on other GPUs, and the value of its steps: for ranks, the scheduler and replays.

`model` has the shapes and formulas, `curve` the best batch of many sizes at once, `fit` the way from measured steps to
parameters. Whoever wants one imports that module: `fit` loads scipy.
"""
