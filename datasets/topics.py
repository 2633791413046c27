"""Topic of live events about datasets."""

__all__ = ["DATASETS"]

#: Progress of the check of each dataset's newest version; for every user.
DATASETS = "datasets"
