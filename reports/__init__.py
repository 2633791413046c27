"""Reports: charts, tables and notes of trainings, frozen when they are added, and public links to them.

Pages and the API call this app. No block refers to a job: a report does not change when its trainings do.
"""
