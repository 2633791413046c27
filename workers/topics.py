"""Topic of live events about the cluster."""

__all__ = ["CLUSTER"]

#: Which job holds which slot, by the job's number; for every user, so never with names or owners.
CLUSTER = "cluster"
