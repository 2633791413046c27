"""Three machines join a site by the documented command, two of them with wrong clocks, and train together."""

import shutil
from collections.abc import Callable

import pytest

from tests.hosts.machines import ROOT, Network
from tests.hosts.site import FAKETIME, Site, running_site
from tests.journey.training import Training
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long]

#: Clock error of each machine. One is ahead by more than any limit on the age of a message, one is behind.
AHEAD_SECONDS = {"gpu1": 0.0, "gpu2": 3600.0, "gpu3": -40.0}


def joined(site: Site) -> None:
    token = site.join_token(3)
    for machine in site.network.machines:
        site.join(machine, token, clock_ahead_seconds=AHEAD_SECONDS[machine.name])


def test_hosts_with_wrong_clocks_are_named_and_train_plain_ddp_together(machines: Callable[[int], Network]) -> None:
    if not FAKETIME.exists() or shutil.which("redis-server") is None:
        leave_out("libfaketime or redis-server is missing: sudo apt-get install libfaketime redis-server")
    with running_site(machines(3)) as site:
        joined(site)
        site.wait_for_hosts(*AHEAD_SECONDS)
        addresses = {name: host["address"] for name, host in site.hosts().items()}
        assert addresses == {machine.name: machine.address for machine in site.network.machines}
        wait_until(lambda: None not in [host["clock_behind_seconds"] for host in site.hosts().values()], site.story)
        site.register_plain(ROOT / "examples/ddp-digits", "ddp")
        with site.api() as api:
            training = Training(api, site.home, "ddp", model="ddp", min_slots=3, max_slots=3, epochs=2)
            training.wait_for_the_end()
            assert {rank["host"] for rank in api.get(f"jobs/{training.id}/ranks/").json()["results"]} == set(
                AHEAD_SECONDS
            )
        behind = {name: host["clock_behind_seconds"] for name, host in site.hosts().items()}
        assert behind == pytest.approx({name: -ahead for name, ahead in AHEAD_SECONDS.items()}, abs=20)
        assert len([user for user in site.broker().acl_users() if user.startswith("host.")]) == 3
        assert not [entry for entry in site.broker().acl_log() if entry["username"].startswith("host.")]
        with site.api() as api:
            assert api.post("hosts/gpu3/drain/").status_code == 200
            wait_until(lambda: api.delete("hosts/gpu3/").status_code == 204, site.story)
        assert not [user for user in site.broker().acl_users() if user.endswith(".gpu3")]
