"""Curves and progress of scripts that do not use Tidepool's API, from their output and files.

`pattern`, `log_parser`, `csv_files`, `val_dict_list` and `tensorboard` parse bytes into points and open no file;
`growing_files` reads files incrementally; `observer` is the executor's thread that reads the trainings of this host.
All input is untrusted.
"""
