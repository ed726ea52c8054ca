"""``margin sample RUN``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from margin.cli.output import Output
from margin.cli.parsing import bracketed, explanations, new_parser, parse


def run(words: Sequence[str]) -> Output:
    """Run the command with what the user typed: the run first, whose model says which options there are."""
    from margin.engine.runs import Run
    from margin.runs.sampling import OWN, options_of, sampler_of

    place = next((word for word in words if not word.startswith("-")), "")
    if not place and not {"-h", "--help"} & set(words):
        raise ValueError("margin sample needs a run: margin sample RUN -n 4")
    parser = new_parser("margin sample", "Draw samples from a run's model.")
    parser.add_argument("run", help="The run's directory.")
    parser.add_argument("-n", "--count", type=int, default=1, help="How many samples.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of what is drawn.")
    parser.add_argument("--prefix", type=str, default="", help="How a text begins.")
    parser.add_argument("--interpolate", action="store_true", help="Draw the path between two samples.")
    parser.add_argument("--out", type=str, default="", help="A file they go to: .npy, .png, .txt, .wav.")
    given = list(words)
    if place:
        sampler = sampler_of(Run(place), "interpolate" if "--interpolate" in words else "sample")
        known = options_of(sampler)
        skipped: set[str | int] = {"self", "count", *explanations(sampler), *OWN}
        skipped -= set(known)
        parser.add_function_arguments(sampler, "sample", skip=skipped)
        given = bracketed(given, "sample", sampler)
    options = parse(parser, given).as_dict()
    return drawn(options)


def drawn(options: dict[str, Any]) -> Output:
    """Draw what was asked for, and show or write it."""
    from margin.runs.sampling import interpolate, sample

    path = Path(options["out"]) if options["out"] else None
    if path is not None and path.exists():
        raise FileExistsError(f"{path} exists: choose another --out")
    run, count, seed, own = options["run"], options["count"], options["seed"], options.get("sample") or {}
    if options["interpolate"]:
        if options["prefix"]:
            raise ValueError("a path between two samples continues no text: leave out the prefix")
        found = interpolate(run, count, seed=seed, options=own)
    else:
        found = sample(run, count, seed=seed, prefix=options["prefix"], options=own)
    if path is not None:
        return Output(
            {"samples": len(found.values), "out": str(found.write(path))},
            f"{len(found.values)} samples in {path}",
        )
    if found.texts:
        return Output(list(found.texts), found.text)
    shown = found.values.tolist()
    return Output(shown, "\n".join(map(str, shown)))
