"""Changes of studies and trials: those that every caller shares, and the controller's turns."""
