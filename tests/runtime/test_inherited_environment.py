"""Tests of the operator's variables that reach processes with users' code."""

from tidepool.inherited_environment import fabric_variables, inherited_environment

OPERATOR = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "NCCL_IB_HCA": "mlx5",
    "UCX_NET_DEVICES": "mlx5_0:1",
    "FI_PROVIDER": "efa",
    "TIDEPOOL_BROKER_URL": "redis://:secret@broker/0",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def test_variables_of_the_network_reach_ranks_and_secrets_do_not() -> None:
    inherited = inherited_environment(OPERATOR)
    assert inherited.keys() == {"PATH", "LC_ALL", "NCCL_IB_HCA", "UCX_NET_DEVICES", "FI_PROVIDER"}
    assert fabric_variables(OPERATOR).keys() == {"NCCL_IB_HCA", "UCX_NET_DEVICES", "FI_PROVIDER"}
