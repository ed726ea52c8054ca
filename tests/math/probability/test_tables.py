"""The rules of probability on random tables, on tables built to factorize, and on the exclusive or."""

import math

import pytest
import torch

from margin.math.probability.tables import JointTable, bayes, chain


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def law(*shape, seed=0, axes=1):
    raw = torch.rand(*shape, generator=generator(seed), dtype=torch.float64) + 0.05
    return raw / raw.sum(tuple(range(-axes, 0)), keepdim=True)


def table(seed=0):
    return JointTable(("X", "Y", "Z"), law(2, 3, 4, seed=seed, axes=3))


def exclusive_or():
    """Two fair bits X and Y, and Z = X + Y modulo 2."""
    p = torch.zeros(2, 2, 2, dtype=torch.float64)
    for x in (0, 1):
        for y in (0, 1):
            p[x, y, (x + y) % 2] = 0.25
    return JointTable(("X", "Y", "Z"), p)


def test_the_sum_rule_adds_over_the_other_variables_in_the_order_asked():
    p = table()
    for z in range(4):
        for x in range(2):
            by_hand = sum(float(p.probabilities[x, y, z]) for y in range(3))
            assert float(p.marginal("Z", "X").probabilities[z, x]) == pytest.approx(by_hand, abs=1e-15)
    assert torch.equal(p.marginal("X", "Y", "Z").probabilities, p.probabilities)
    assert torch.equal(p.marginal("Y", "Z", "X").probabilities, p.probabilities.permute(1, 2, 0))


def test_the_chain_of_conditionals_is_the_joint():
    p = table(1)
    start = p.marginal("Z")
    two = chain(start, p.conditional(["X"], ["Z"]).mT, "X")
    whole = chain(two, p.conditional(["Y"], ["Z", "X"]).movedim(0, -1), "Y")
    assert whole.names == ("Z", "X", "Y")
    torch.testing.assert_close(
        whole.marginal("X", "Y", "Z").probabilities, p.probabilities, rtol=0, atol=1e-15
    )


def test_a_conditional_is_a_law_and_undefined_where_nothing_is():
    p = table(2)
    given = p.conditional(["X", "Y"], ["Z"])
    assert given.shape == (2, 3, 4)
    torch.testing.assert_close(given.sum((0, 1)), torch.ones(4).double())
    observed = p.observe("Z", 2)
    assert observed.names == ("X", "Y")
    torch.testing.assert_close(observed.probabilities, given[..., 2])
    hole = JointTable(("A", "B"), torch.tensor([[0.5, 0.0], [0.5, 0.0]]))
    conditional = hole.conditional(["A"], ["B"])
    assert conditional[:, 0].tolist() == [0.5, 0.5]
    assert bool(conditional[:, 1].isnan().all())


def test_bayes_rule_is_the_quotient_of_the_joint():
    prior, likelihood = law(3, seed=3), law(3, 5, seed=4)
    posterior = bayes(prior, likelihood)
    joint = JointTable(("cause", "outcome"), prior[:, None] * likelihood)
    torch.testing.assert_close(posterior, joint.conditional(["cause"], ["outcome"]))
    torch.testing.assert_close(posterior.sum(0), torch.ones(5).double())
    # a rare disease: 1 % ill, test right in 99 % of the ill and 95 % of the healthy
    test = torch.tensor([[0.99, 0.01], [0.05, 0.95]], dtype=torch.float64)
    found = bayes(torch.tensor([0.01, 0.99], dtype=torch.float64), test)
    assert float(found[0, 0]) == pytest.approx(0.0099 / (0.0099 + 0.0495), abs=1e-15)


def test_bayes_rule_printed_without_the_prior_in_the_denominator_is_no_law():
    prior, likelihood = law(3, seed=3), law(3, 5, seed=4)
    printed = likelihood * prior[:, None] / likelihood.sum(0)
    assert (printed.sum(0) - 1).abs().max() > 0.1


def test_an_outcome_without_probability_has_no_posterior():
    found = bayes(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert found[:, 0].tolist() == [0.5, 0.5]
    assert bool(found[:, 1].isnan().all())


@pytest.mark.parametrize("seed", range(5))
def test_conditional_independence_is_that_knowing_more_changes_nothing(seed):
    z, x_given_z, y_given_z = law(4, seed=seed), law(4, 2, seed=seed + 10), law(4, 3, seed=seed + 20)
    p = JointTable(("Z", "X", "Y"), z[:, None, None] * x_given_z[:, :, None] * y_given_z[:, None, :])
    assert p.independent(["X"], ["Y"], ["Z"])
    assert not p.independent(["X"], ["Y"])
    knowing_both = p.conditional(["X"], ["Y", "Z"])
    torch.testing.assert_close(knowing_both, p.conditional(["X"], ["Z"])[:, None, :].expand_as(knowing_both))
    assert float(p.information(["X"], ["Y"], ["Z"])) == pytest.approx(0, abs=1e-14)
    assert float(p.information(["X"], ["Y"])) > 1e-6
    assert not table(seed).independent(["X"], ["Y"], ["Z"])


def test_pairs_of_the_exclusive_or_are_independent_but_not_given_the_third():
    p = exclusive_or()
    for first, second, third in (("X", "Y", "Z"), ("Y", "Z", "X"), ("X", "Z", "Y")):
        assert p.independent([first], [second])
        assert not p.independent([first], [second], [third])
        assert float(p.information([first], [second], base=2)) == 0
        assert float(p.information([first], [second], [third], base=2)) == pytest.approx(1, abs=1e-15)
    assert float(p.information(["X", "Y"], ["Z"], base=2)) == pytest.approx(1, abs=1e-15)


def test_independence_is_decided_at_the_tolerance():
    p = torch.full((2, 2), 0.25, dtype=torch.float64)
    p[0, 0] += 1e-4
    p[0, 1] -= 1e-4
    p[1, 1] += 1e-4
    p[1, 0] -= 1e-4
    nearly = JointTable(("X", "Y"), p)  # P(x, y) - P(x) P(y) = 1e-4 throughout
    assert nearly.independent(["X"], ["Y"], tolerance=1.01e-4)
    assert not nearly.independent(["X"], ["Y"], tolerance=0.99e-4)


def test_entropies_obey_the_chain_rule_and_expectations_add():
    p = table(5)
    conditional = sum(
        float(p.marginal("Z").probabilities[z]) * float(p.observe("Z", z).entropy("X", "Y")) for z in range(4)
    )
    whole = float(p.entropy("X", "Y", "Z"))
    assert whole == pytest.approx(float(p.entropy("Z")) + conditional, abs=1e-14)
    x, y = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0, 4.0]).double()
    both = p.expectation((x[:, None, None] + y[:, None]).expand(2, 3, 4))
    apart = x @ p.marginal("X").probabilities + y @ p.marginal("Y").probabilities
    assert float(both) == pytest.approx(float(apart), abs=1e-14)
    assert float(p.entropy("X", base=2)) == pytest.approx(float(p.entropy("X")) / math.log(2), abs=1e-15)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: JointTable(("X",), torch.full((2, 2), 0.25)), "names must be different, one an axis"),
        (lambda: JointTable(("X", "X"), torch.full((2, 2), 0.25)), "names must be different, one an axis"),
        (lambda: JointTable((), torch.tensor(1.0)), "must have an axis for each variable"),
        (lambda: JointTable(("X",), torch.tensor([0.5, 0.6])), "must sum to 1: got 1.1; divide by the sum"),
        (lambda: JointTable(("X",), torch.tensor([1.5, -0.5])), r">= 0: got -0.5 at \(1,\)"),
        (lambda: JointTable(("X",), torch.tensor([0.5, math.nan])), r">= 0: got nan at \(1,\)"),
        (lambda: JointTable(("X",), torch.tensor([0.5, math.inf])), r"finite and >= 0: got inf at \(1,\)"),
        (lambda: table().marginal("W"), "the table has the variables X, Y, Z: got 'W'"),
        (lambda: table().marginal(), "variables must be named, each once"),
        (lambda: table().conditional(["X"], ["X"]), "variables must be named, each once"),
        (lambda: table().observe("X", 2), "X has the outcomes 0 to 1: got 2"),
        (lambda: table().observe("X", -1), "X has the outcomes 0 to 1: got -1"),
        (lambda: exclusive_or().observe("X", 0).observe("Y", 0).observe("Z", 1), "above 0: got Z=1"),
        (lambda: table().expectation(torch.ones(2, 3).double()), r"got \(2, 3\) for \(2, 3, 4\)"),
        (lambda: chain(table().marginal("X"), law(3, 2), "W"), r"got \(3, 2\) for \(2,\)"),
        (lambda: chain(table().marginal("X"), law(2, 3).mT, "W"), "conditional must sum to 1"),
        (lambda: bayes(law(3), law(5, 3).mT), "likelihood must sum to 1"),
    ],
)
def test_what_is_no_table_or_no_question_to_one_is_refused(act, message):
    with pytest.raises(ValueError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)


def test_rounding_of_single_precision_passes_for_a_law():
    p = torch.rand(50, 200, generator=generator(7)).softmax(-1)
    assert float((p.double().sum(-1) - 1).abs().max()) > 0
    JointTable(("X", "Y"), p / 50)
    JointTable(("X", "Y"), p.double() / 50)
    with pytest.raises(ValueError, match=r"must sum to 1: got 1\.00002; divide by the sum"):
        JointTable(("X", "Y"), p.double() / 50 * 1.00002)


def test_dependence_given_a_rare_outcome_is_seen() -> None:
    """Given c = 1, of probability 1e-6, a and b are equal; given c = 0 they are independent."""
    table = torch.zeros(2, 2, 2, dtype=torch.float64)
    table[..., 0] = (1 - 1e-6) / 4
    table[0, 0, 1] = table[1, 1, 1] = 5e-7
    assert not JointTable(("a", "b", "c"), table).independent(["a"], ["b"], ["c"])
    table[..., 1] = 2.5e-7
    assert JointTable(("a", "b", "c"), table).independent(["a"], ["b"], ["c"])


def test_tables_in_single_precision_are_independent_to_their_rounding() -> None:
    law = torch.tensor([0.1, 0.2, 0.7])
    table = JointTable(("a", "b"), law[:, None] * torch.tensor([0.3, 0.7]))
    assert table.independent(["a"], ["b"])
    bent = table.probabilities + 1e-4 * torch.tensor([[1.0, -1], [-1, 1], [0, 0]])
    assert not JointTable(("a", "b"), bent).independent(["a"], ["b"])


def test_the_tolerance_is_of_what_is_known_not_of_the_joint() -> None:
    """Given c = 1, of probability 1/100, P(a, b | c) differs from its product by 2e-3 throughout."""
    table = torch.full((2, 2, 2), 0.99 / 4, dtype=torch.float64)
    table[..., 1] = 0.01 * (0.25 + 2e-3 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64))
    law = JointTable(("a", "b", "c"), table)
    assert law.independent(["a"], ["b"], ["c"], tolerance=2.01e-3)
    assert not law.independent(["a"], ["b"], ["c"], tolerance=1.99e-3)
