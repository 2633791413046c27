"""Hosts, slots and resource groups, and the executor that runs on each host. `jobs` and the apps above it call it."""
