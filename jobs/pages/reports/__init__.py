"""Pages of reports: the list, one of them, its editing, what is added to one, and what a share link shows."""
