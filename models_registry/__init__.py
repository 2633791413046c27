"""Templates, and registered models with their versions. Called by `jobs` and above."""
