"""Finds its results in the ways that scripts for WMLA have; with an argument, imports the module of that name first."""

import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
for name in sys.argv[1:]:
    __import__(name)
results = Path(os.environ["RESULT_DIR"])
built = Path(os.environ["DLI_RESULT_FS"], os.environ["USER"], "batchworkdir", os.environ["DLI_EXECID"])
(built / "written-there").write_text(f"{os.environ['USER']} {os.environ['DLI_IS_ELASTIC']}")
assert built.samefile(results)
assert (results / "_submitted_code" / Path.cwd().name).samefile(os.curdir)
assert Path(os.environ["PYTHONPATH"].split(os.pathsep)[2]).samefile(os.curdir)
