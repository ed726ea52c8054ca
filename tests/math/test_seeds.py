"""Seeds mix their words, and no two steps share one."""

from margin.math.seeds import mix


def test_no_two_steps_share_a_seed() -> None:
    assert len({mix(3, 0, step) for step in range(200_000)}) == 200_000


def test_a_seed_fits_torchs_32_bits_and_depends_on_every_word() -> None:
    seeds = {mix(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert mix(1, 2) != mix(2, 1)


def test_steps_that_follow_each_other_differ_in_half_of_the_bits() -> None:
    flips = [(mix(0, step) ^ mix(0, step + 1)).bit_count() for step in range(2000)]
    # the mean of 2000 binomial(32, 1/2): standard error 0.063, four of them 0.25
    assert abs(sum(flips) / len(flips) - 16) <= 0.5
