"""Pages and previews of instance groups. What changes them is in jobs/actions/groups.py."""
