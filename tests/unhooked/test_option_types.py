"""Options of another type or outside their choices are refused in words, from Python too."""

import pytest

from margin.core.options import Training


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"lr": "a"}, "lr must be a number: got 'a'"),
        ({"precision": "foo"}, "precision must be one of float32, float64, bfloat16: got 'foo'"),
        ({"schedule": "foo"}, "schedule must be one of constant, cosine, linear, .*, plateau: got 'foo'"),
        ({"batch_size": "foo"}, "batch_size must be a whole number or 'all': got 'foo'"),
        ({"log": ["wandb"]}, "log must be a list of one of csv, tensorboard, samples: got \\['wandb'\\]"),
        ({"epochs": 1.5}, "epochs must be a whole number: got 1.5"),
        ({"epochs": True}, "epochs must be a whole number: got True"),
        ({"decay_norms": "x"}, "decay_norms must be true or false: got 'x'"),
    ],
)
def test_an_option_of_another_type_is_refused(option: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**option)
