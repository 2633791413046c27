"""`/api/v1/templates/` and `/api/v1/models/`. Called by `webapp.api` only."""
