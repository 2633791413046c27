"""WMLA's REST, in both of its dialects: other words for the jobs, groups and logs that everything else shows."""
