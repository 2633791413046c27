"""Command of a fleet of pilots in Slurm: batch jobs that are hosts. Arguments: options of sbatch and the batch script.

    command = ["python3", "slurm.py", "--partition=gpu", "--gpus-per-node=8", "--time=12:00:00", "pilot.sh"]

The batch script gets TIDEPOOL_FLEET, SITE and TOKEN, and joins under the name `slurm-<job id>`:

    exec python -m workers.executor.pilot --url $SITE --token $TOKEN --home /mnt/pool
"""

import json
import os
import subprocess
import sys

PREFIX = "slurm-"


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{command[0]} failed")
    return done.stdout


def main(options: list[str]) -> None:
    request = json.load(sys.stdin)
    if request["action"] == "stop":
        run("scancel", *(name.removeprefix(PREFIX) for name in request["hosts"]))
        print(json.dumps({"count": len(request["hosts"])}))
        return
    given = {"TIDEPOOL_FLEET": request["fleet"], "SITE": request["site"], "TOKEN": request.get("join_token", "")}
    numbers = [
        run("sbatch", "--parsable", "--export=ALL", *options, **given).strip().split(";")[0]
        for _ in range(request["count"])
    ]
    print(json.dumps({"count": len(numbers), "message": f"Submitted {', '.join(numbers)}."}))


if __name__ == "__main__":
    main(sys.argv[1:])
