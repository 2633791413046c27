"""Pages of hosts and resource groups. They are here, above `workers`, because they tell of trainings, too.

hosts.py, host_views.py     who holds which GPU, and what draining or removing a host would do
groups.py, group_views.py   resource groups, and which trainings would move off when one changes
words.py                    sentences about trainings that move off
"""
