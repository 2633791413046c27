"""Hosts that come and go: what capacity is wanted, and the fleets whose commands start and stop hosts."""
