"""Studies: searches for good hyperparameters, whose trials are ordinary elastic trainings.

The rows of a study are the truth; `space`, `samplers`, `pruners` and `importance` are pure functions of them. Pages,
the API and WMLA's requests call this app; trainings know nothing of it.
"""
