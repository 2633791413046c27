"""Micro-batches of an application that was measured on a kind of GPU."""

from benchmarks.sia import micro_bounds

HEADER = "placement,local_bsz,step_time,sync_time\n"
SHAPES = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"


def bounds(placements: str, shapes: str = "") -> tuple[int, int]:
    return micro_bounds({"placements.csv": HEADER + placements, "scalability.csv": SHAPES + shapes}, 64)


def test_a_size_that_is_measured_on_one_gpu_alone_does_not_count() -> None:
    assert bounds("1,4,1,0\n1,8,1,0\n1,16,1,0\n12,4,1,0\n12,8,1,0\n") == (4, 8)


def test_a_size_left_out_where_it_would_exceed_the_largest_batch_counts() -> None:
    assert bounds("1,4,1,0\n1,16,1,0\n", "2,8,4,1,0\n") == (4, 16)
