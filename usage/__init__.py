"""GPU hours and their costs: sums per hour and day, prices, the usage page and its API.

`jobs` records who held which GPU (`SlotClaim`, `GpuActivity`); this app adds it up. `insights` reads the sums.
"""
