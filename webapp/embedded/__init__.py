"""The embedded stack: everything that Tidepool needs, as child processes on one machine (`manage.py up`)."""
