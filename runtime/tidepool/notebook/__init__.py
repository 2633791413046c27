"""`%load_ext tidepool`: cells of a notebook that run on the cluster, and the program's commands in it."""
