"""Command of a fleet of SkyPilot clusters of one node each. Argument: a task file, such as

    resources:
      accelerators: A100:8
      use_spot: true
    run: |
      TIDEPOOL_FLEET=$TIDEPOOL_FLEET python -m workers.executor.join --url $SITE --token $TOKEN --name $HOST

The cluster's name is the host's name, so that it can be taken down by that.
"""

import json
import subprocess
import sys


def sky(*arguments: str) -> None:
    done = subprocess.run(["sky", *arguments, "--yes"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or "sky failed")


def main(task: str) -> None:
    request = json.load(sys.stdin)
    if request["action"] == "stop":
        for name in request["hosts"]:
            sky("down", name)
        print(json.dumps({"count": len(request["hosts"])}))
        return
    for number in range(1, request["count"] + 1):
        name = f"{request['fleet']}-{request['change']}-{number}"
        values = {
            "HOST": name, "TIDEPOOL_FLEET": request["fleet"], "SITE": request["site"],
            "TOKEN": request.get("join_token", ""),
        }  # fmt: skip
        given = [part for key, value in values.items() for part in ("--env", f"{key}={value}")]
        sky("launch", task, "--cluster", name, "--detach-run", *given)
    print(json.dumps({"count": request["count"]}))


if __name__ == "__main__":
    main(sys.argv[1])
