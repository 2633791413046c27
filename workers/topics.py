"""Topic of live events about the cluster."""

__all__ = ["CLUSTER"]

#: Topic of slots and their jobs' ids. Every user may read it, so events never contain names or owners.
CLUSTER = "cluster"
