"""How many slots each job of one instance group gets: pure functions `shares(demands, capacity, preemption=...)`.

`demands` come in the order in which they are served: by priority, under fifo by submission (demand.py).
They return the number of slots for each job that gets any. A running job that is missing is to be stopped (only ever
under the priority policy with preemption); any other job that is missing waits. Every number lies within the job's
minimum and maximum, except that a running job which holds less than its minimum may be left with what it holds.

Jobs wait in order, without overtaking: a waiting job is passed over only if it could not start even on all slots.
"""
