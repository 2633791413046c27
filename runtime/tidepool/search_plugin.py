"""Names of the files by which a study asks its plug-in, and the script of the training that does so.

The training reads ASK_FILE beside the script, and writes ANSWER_FILE and STATE_FILE into its results. The site reads
the answer as it reads any file of a user's, and never the state: only the training of the next call unpickles it.
"""

__all__ = ["ANSWER_FILE", "ASK_FILE", "COMPAT", "OPTIMIZER_FILE", "RUNNER_FILE", "RUNNER_SOURCE", "STATE_FILE"]

#: Name of the folder below `compat/`.
COMPAT = "wmla_plugins"
#: Module of the plug-in, with its class `PluginOptimizer`.
OPTIMIZER_FILE = "optimizer.py"
#: Name and content of the entry point.
RUNNER_FILE = "tidepool_plugin_call.py"
RUNNER_SOURCE = '''\
"""Asks the search algorithm in optimizer.py for the values that a study tries next."""

from tidepool.search_plugin_runner import run

run()
'''
#: JSON object: name, hyper_parameters, options, objective, metric, log_level, samples, results, and state, which is the
#: path of the former call's state or null.
ASK_FILE = "plugin-ask.json"
#: JSON object: proposals, a list of objects with a value for each parameter.
ANSWER_FILE = "proposals.json"
#: Pickle of the plug-in after the call.
STATE_FILE = "plugin-state.pkl"
