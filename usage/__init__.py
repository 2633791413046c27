"""GPU hours and their costs: sums per hour and day, prices, the usage page and its API.

`jobs` records who held which GPU (`SlotClaim`, `GpuActivity`); this app sums the claims. `insights` reads the sums.
"""
