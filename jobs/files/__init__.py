"""Files that a job leaves on disk: folder, logs, results. Used by the other packages of `jobs` and by `wmla`."""
