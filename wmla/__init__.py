"""WMLA's REST API in both of its dialects, backed by the same jobs, groups and logs as the rest of Tidepool."""
