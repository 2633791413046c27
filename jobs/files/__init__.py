"""Files that a job leaves on disk: folder, logs, results. Called by every room of `jobs` above, and by `wmla`."""
