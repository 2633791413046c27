"""Recordings of a rank on request: flame graphs and traces.

The shim hands a request to the rank by the socket between them. A thread of the rank that waits there from the start
takes it, so nothing interrupts the script, and records in a thread of its own. The answer is a file in the rank's log
folder, where the control plane reads it.
"""
