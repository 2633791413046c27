"""Pages and previews of instance groups; `jobs/actions/groups.py` changes the groups."""
