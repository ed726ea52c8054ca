"""A finding comes back from its JSON to the bit; a record that was changed is refused, or says what it holds.

That each claim's own finding comes back is a contract of the claims: ``margin.testing.check_record``.
"""

import copy
import json
import math
import random

import pytest
import torch

from margin import testing
from margin.core.findings import Finding, Premise
from margin.core.records import TYPES, tensors_of

PREMISES = (Premise("draws are independent", "assumed", "as the user says"),)


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


FINDINGS = {
    "a scalar": {"value": torch.tensor(0.1)},
    "rows": {"value": f64(0.1, 1 / 3), "labels": ("a", "b"), "high": torch.tensor(0.5), "sample": "9 drawn"},
    "an estimate": {"value": f64(0.3), "kind": "estimate", "stderr": torch.tensor([0.1])},
    "an interval": {
        "value": f64(0.3), "kind": "estimate", "interval": (f64(-0.5), f64(0.4)), "low": f64(0.2),
        "printed": (f64(0.25), f64(0.35)), "sandwich": (f64(0.0), torch.tensor(0.9)), "scope": "probability",
    },
    "what is not finite": {
        "value": f64(math.nan, math.inf, -math.inf, -0.0), "range": (-math.inf, math.inf),
        "high": f64(math.inf),
    },
    "an identity": {"value": torch.tensor(3), "range": (0.0, math.inf), "equals": 3.0, "tolerance": 1e-9},
    "a failure": {"value": f64(), "failure": "it did not settle", "premises": PREMISES, "remarks": ("so",)},
    "curves": {"value": f64(0.5), "curves": {n: torch.ones(2, 3).to(t) for n, t in TYPES.items()}},
}  # fmt: skip


def made(name: str) -> Finding:
    return Finding(**{"statement": name, "range": (0.0, 1.0), "unit": "nats", **FINDINGS[name]})


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_comes_back_to_the_bit(name: str) -> None:
    found = made(name)
    testing.check_record(found)
    back = Finding.from_json(json.loads(json.dumps(found.as_json(), allow_nan=False)))
    assert back.verdict is found.verdict and back.labels == found.labels
    for one, other in zip(back.shown, found.shown, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    assert json.dumps(back.as_json()) == json.dumps(found.as_json())


def test_types_and_zeros_come_back() -> None:
    back = Finding.from_json(made("what is not finite").as_json())
    assert math.copysign(1.0, float(back.value[3])) == -1.0
    assert {n: str(x.dtype) for n, x in tensors_of(Finding.from_json(made("curves").as_json())).items()} == {
        "value": "torch.float64", **{f"curves.{name}": f"torch.{name}" for name in TYPES},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("verdict", "violated", "verdict does not follow from the rest"),
        ("reach", [[0.0], [0.2]], "reach does not follow from the rest"),
        ("kind", "rough", "kind must be one of exact, estimate, lower, upper"),
        ("statement", 5, "statement must be a word"),
        ("value", [[0.1], [0.2, 0.3]], "expected sequence of length 1"),
        ("value", ["many"], "'many'"),
        ("premises", [{"text": "x", "status": "hoped", "evidence": ""}], "premises must be texts"),
        ("more", 1, "more does not follow from the rest"),
        (
            "stated",
            {"interval": None, "printed": None, "types": {"value": "str"}},
            "types must be among float64",
        ),
        ("stderr", [0.1], "an exact value has neither stderr nor interval"),
        ("bracket", [[0.0] * 3, [1.0] * 3], "is no finding: "),  # of two values
        ("bracket", [[0.0] * 2, [1.0] * 3], "is no finding: "),
    ],
)
def test_a_record_that_was_changed_is_refused_in_a_line(key: str, value: object, said: str) -> None:
    record = made("rows").as_json() | {key: value}
    with pytest.raises(ValueError) as error:
        Finding.from_json(record)
    assert said in str(error.value) and "\n" not in str(error.value)


STRANGE = (None, True, -1, 3.5, 10**30, "", "nan", "x", [], [[]], {}, [10**11], ["a", 1], {"a": {"b": []}})


def ways(tree: object, here: tuple = ()) -> list[tuple]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [way for key, value in items for way in ((*here, key), *ways(value, (*here, key)))]


@pytest.mark.parametrize("name", FINDINGS)
def test_whatever_is_changed_is_refused_or_is_what_the_record_says(name: str) -> None:
    whole, chance, told = made(name).as_json(), random.Random(name), list[str]()
    for _ in range(150):
        record = copy.deepcopy(whole)
        *way, last = chance.choice(ways(record))
        inner = record
        for key in way:
            inner = inner[key]
        if chance.random() < 0.3:
            del inner[last]
        else:
            inner[last] = chance.choice(STRANGE)
        try:
            back = Finding.from_json(record)
        except ValueError as error:
            told.append(str(error))
        else:
            assert back.as_json() == record
    assert len(told) > 75
    assert {len(line.splitlines()) for line in told} == {1}
