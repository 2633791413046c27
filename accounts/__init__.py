"""Users, roles, tokens and one-time links. Called by pages, the API and `wmla`; may import `core` only."""
