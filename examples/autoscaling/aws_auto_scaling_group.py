"""Command of a fleet that is an AWS auto scaling group. Argument: the group's name. Needs the AWS CLI.

The group's launch template starts the executor at boot, named after the instance:

    TIDEPOOL_HOST_NAME=<instance id> TIDEPOOL_FLEET=<fleet> TIDEPOOL_NOTICE=aws python -m workers.executor.join ...

A join token with as many uses as the group may have instances stands in the template.
"""

import json
import subprocess
import sys
from typing import Any


def aws(*arguments: str) -> Any:
    done = subprocess.run(["aws", "autoscaling", *arguments, "--output", "json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or "aws failed")
    return json.loads(done.stdout) if done.stdout.strip() else {}


def main(group: str) -> None:
    request = json.load(sys.stdin)
    if request["action"] == "stop":
        for instance in request["hosts"]:
            aws("terminate-instance-in-auto-scaling-group", "--instance-id", instance,
                "--should-decrement-desired-capacity")  # fmt: skip
        print(json.dumps({"count": len(request["hosts"])}))
        return
    [found] = aws("describe-auto-scaling-groups", "--auto-scaling-group-names", group)["AutoScalingGroups"] or [None]
    if found is None:
        sys.exit(f"there is no auto scaling group named {group}")
    # Not more than are wanted in all, if an earlier answer was lost on its way.
    desired = min(found["MaxSize"], max(found["DesiredCapacity"], request["total"]))
    count = min(request["count"], desired - found["DesiredCapacity"])
    if count:
        aws("set-desired-capacity", "--auto-scaling-group-name", group, "--desired-capacity", str(desired))
    message = "" if count == request["count"] else f"{group} has {found['DesiredCapacity']} of {found['MaxSize']}."
    print(json.dumps({"count": count, "message": message}))


if __name__ == "__main__":
    main(sys.argv[1])
