"""`/metrics` for Prometheus: what the database knows, counted when asked, and what this web process has done."""
