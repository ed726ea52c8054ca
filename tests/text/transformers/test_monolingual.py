"""A decoder that has read its language alone, behind an empty source, translates with fewer pairs."""

import torch
import torch.nn.functional as F

from margin.engine.transfer import transfer
from margin.nn.seq2seq import BEGIN, END
from margin.text.transformers.encoder_decoder import Transformer

WORDS, TIME = 8, 7


def sentences(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Walks over a circle of words; the target says them with other words."""
    g = torch.Generator().manual_seed(seed)
    steps = torch.where(torch.rand(count, TIME, generator=g) < 0.9, 1, 3)
    walk = (torch.randint(WORDS, (count, 1), generator=g) + steps.cumsum(1)) % WORDS
    other = torch.randperm(WORDS, generator=torch.Generator().manual_seed(9))
    return walk + 3, F.pad(other[walk] + 3, (0, 1), value=END)


def loss(model: Transformer, source: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    shown = F.pad(asked[:, :-1], (1, 0), value=BEGIN)
    return F.cross_entropy(model(source, None, shown).flatten(0, 1), asked.flatten())


def trained(model: Transformer, source: torch.Tensor, asked: torch.Tensor, steps: int) -> Transformer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, source, asked).backward()
        optimizer.step()
    return model


# seven seconds: two trainings, of which one must be the better
def test_a_decoder_that_read_its_language_needs_fewer_pairs() -> None:
    """Five paired seeds, 16 pairs, 25 steps: the 95 % interval of the held-out gap is above 0."""
    gaps = []
    for seed in range(5):
        language, pairs, held = (sentences(n, 3 * seed + k) for k, n in enumerate((100, 16, 200)))
        found = []
        for before in (False, True):
            torch.manual_seed(seed)
            model = Transformer(WORDS + 3, WORDS + 3, width=16, depth=1, heads=2, dropout=0.0)
            if before:
                reader = Transformer(WORDS + 3, WORDS + 3, width=16, depth=1, heads=2, dropout=0.0)
                empty = torch.full((len(language[0]), 1), END)
                transfer(model, trained(reader, empty, language[1], 150))
            trained(model, *pairs, 25)
            with torch.no_grad():
                found.append(loss(model, *held))
        gaps.append(found[0] - found[1])
    gap = torch.stack(gaps)
    assert float(gap.mean() - 2.776 * gap.std() / 5**0.5) > 0, gap
