"""GPU-hours, their sums and their costs. Called by pages, the API and the control plane's reports."""
