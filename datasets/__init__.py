"""Registered datasets, their versions and checks. Called by `jobs` and above."""
