"""The audit: `entries.audit` records a change, for every app; the rest is its list, its page and its API."""
