"""The breadcrumb of the list of trainings, under which pages of trainings stand."""

LIST_CRUMB = ("Trainings", "/jobs/")
