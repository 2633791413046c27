"""`/api/v1/datasets/`. Called by `webapp.api` only."""
