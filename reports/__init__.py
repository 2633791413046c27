"""Reports: figures, tables and notes that people choose of their trainings, frozen, and the links that open them.

Pages and the API call it. No block refers to a job: a report stays as it is, whatever becomes of the training.
"""
