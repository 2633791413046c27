"""Reports of trainings: what may be chosen, how it is frozen, who reads it, and links. Called by pages and the API."""
