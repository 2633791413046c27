"""The scheduler: pure and deterministic. `schedule(snapshot) -> Plan`; see schedule.py."""
