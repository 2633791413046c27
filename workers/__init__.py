"""Hosts, slots and resource groups, and the executor that runs on each host. Called by `jobs` and above."""
