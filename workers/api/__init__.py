"""`/api/v1/hosts/`, `slots/`, `resource-groups/` and join tokens. Called by `webapp.api` only."""
