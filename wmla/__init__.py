"""WMLA's REST in both of its dialects, over the same jobs, groups and logs as the rest of Tidepool."""
