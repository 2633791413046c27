"""The simulator: plays a trace of trainings against a policy, in seconds. Pure, as the scheduler that it asks."""
