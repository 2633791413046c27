"""Machines that reach the site, its broker and each other by IPv6 alone."""

import json
import shutil
from collections.abc import Callable

import pytest

from tests.hosts.machines import ROOT, Network
from tests.hosts.site import running_site
from tests.journey.training import Training, register_model
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]

_LEASE_SECONDS = 8


def test_hosts_join_train_and_survive_a_cut_where_there_is_no_ipv4(machines: Callable[..., Network]) -> None:
    if shutil.which("redis-server") is None:
        leave_out("redis-server is missing: sudo apt-get install redis-server")
    network = machines(2, ipv6=True)
    with running_site(network, {"TIDEPOOL_LEASE_SECONDS": str(_LEASE_SECONDS)}) as site, site.api() as api:
        token = site.join_token(2)
        for machine in network.machines:
            site.join(machine, token)
        site.wait_for_hosts("gpu1", "gpu2")
        addresses = {name: host["address"] for name, host in site.hosts().items()}
        assert addresses == {machine.name: machine.address for machine in network.machines}
        assert len([user for user in site.broker().acl_users() if user.startswith("host.")]) == 2

        site.register_plain(ROOT / "examples/ddp-digits", "ddp")
        plain = Training(api, site.home, "ddp", model="ddp", min_slots=2, max_slots=2, epochs=2)
        plain.wait_for_the_end()
        hosts = {rank["host"] for rank in api.get(f"jobs/{plain.id}/ranks/").json()["results"]}
        assert hosts == {"gpu1", "gpu2"}

        register_model(site.home, api, "recorder")
        training = Training(api, site.home, "elastic", max_slots=2, epochs=1000, **{"step-seconds": 0.3})
        training.wait_for_size(2)
        wait_until(lambda: training.steps > 5, site.story)
        lead = json.loads((training.folder / "current" / "coordinator.json").read_text())["address"]
        [member] = [machine.name for machine in network.machines if machine.address != lead]
        network.cut_off(member)
        wait_until(lambda: site.hosts()[member]["state"] == "LOST", site.story)
        training.wait_for_size(1)
        made = training.steps
        wait_until(lambda: training.steps > made + 5, site.story)
        network.heal()
        site.wait_for_hosts("gpu1", "gpu2")
        training.wait_for_size(2)
        assert training.now["attempt"] == 1
        steps = [line["step"] for line in training.lines("metrics.jsonl")]
        assert steps == [*range(1, len(steps) + 1)]
