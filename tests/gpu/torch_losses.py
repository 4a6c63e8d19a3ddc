"""Trains the network of a run under PyTorch, from the same weights on the same data, and compares losses.

Reads the file that `flopcast run -o` wrote; everything is in 32 bits, on the GPU if torch has one. Prints a Markdown
table. Exits with 1 if a loss is not a finite number, or if a loss or its change over the steps differs by more than
the precision of the run explains; with 2 if the file is invalid or its run has features that are not compared; with 77 if
PyTorch or numpy is missing or cannot be loaded.
"""

import argparse
import json
import math
import sys

DIFFERS = 1
BAD_INPUT = 2
LEFT_OUT = 77
# Tolerances of the loss, and relative to the largest change by PyTorch's steps. In bf16 and fp8 steps drift apart.
TOLERANCES = {"fp32": 1e-4, "tf32": 1e-3, "bf16": 2e-2, "fp8": 5e-2}
OF_CHANGES = {"fp32": 1e-2, "tf32": 5e-2, "bf16": 0.1, "fp8": 0.2}
ASYNCHRONOUS = ("pipedream", "pipedream-2bw", "pipemare")
# Compared properties, with the job's defaults.
MODEL = {"layers": None, "hidden": None, "heads": None, "kv_heads": 0, "head_dim": 0, "ffn": None, "vocab": None,
         "sequence_length": None, "tied_embeddings": True, "norm": "layernorm", "gated_mlp": False, "biases": True,
         "positions": "learned"}
CHOICES = {"norm": ("layernorm", "rmsnorm"), "positions": ("learned", "rotary", "none")}


def refuse(problem):
    print(f"error: {problem}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def read_run(path):
    """Model, precision, samples of a step and of a microbatch, losses of all steps, learning rate and seed of a run."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        run, precision = document["run"], document["samples"][0]["dtype"]
        losses = [step["loss"] for step in run["steps"]]
        given, training = run["job"]["model"], run["job"].get("training", {})
        samples = run["dp"] * run["microbatches"] * run["micro_batch_size"]
        chunk, schedule, compression = run["micro_batch_size"], run["schedule"], run["compression"]
        rate, seed = float(run["learning_rate"]), int(run["seed"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        refuse(f"{path}: not the file of a run with steps: {type(error).__name__} {error}")
    if not isinstance(given, dict) or set(given) - set(MODEL) - {"name"}:
        others = given if isinstance(given, str) else ", ".join(sorted(set(given) - set(MODEL) - {"name"}))
        refuse(f"{path}: run.job.model: not compared here: {others}; compared: {', '.join(MODEL)}")
    model = {**MODEL, **{key: given[key] for key in given if key in MODEL}}
    model["sequence_length"] = training.get("sequence_length", model["sequence_length"])
    missing = [key for key, value in model.items() if value is None]
    if missing:
        refuse(f"{path}: run.job.model: {', '.join(missing)} missing")
    for key, valid in CHOICES.items():
        if model[key] not in valid:
            refuse(f"{path}: run.job.model.{key}: {model[key]} is not compared here: {', '.join(valid)}")
    if schedule in ASYNCHRONOUS or training.get("optimizer", "adam") != "adam" or "finetune" in training:
        refuse(f"{path}: only schedules that flush, trained whole by adam, are compared")
    if compression != "none":
        refuse(f"{path}: run.compression: {compression} leaves out of gradients what PyTorch keeps: none is compared")
    if run["job"].get("layout", {}).get("cp", 1) != 1:
        refuse(f"{path}: run.job.layout.cp: ranks that share a sequence are not compared here: 1")
    if precision not in TOLERANCES:
        refuse(f"{path}: samples[0].dtype: {precision} is not compared here: {', '.join(TOLERANCES)}")
    if len(losses) < 2:
        refuse(f"{path}: run.steps: {len(losses)}, but at least two are required")
    model["kv_heads"] = model["kv_heads"] or model["heads"]
    model["head_dim"] = model["head_dim"] or model["hidden"] // model["heads"]
    return model, precision, samples, chunk, losses, rate, seed


def check_finite(who, losses):
    for step, loss in enumerate(losses):
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            print(f"error: {who}: the loss of step {step} is not a finite number", file=sys.stderr)
            sys.exit(DIFFERS)


def distances(ours, theirs):
    """Largest difference of the losses, and of their changes since the first, both relative."""
    worst = max(abs(own / other - 1) for own, other in zip(ours, theirs))
    most = max(abs(other - theirs[0]) for other in theirs)
    apart = max(abs((own - ours[0]) - (other - theirs[0])) for own, other in zip(ours, theirs))
    return worst, apart / most if most > 0 else float(apart > 0)


def mix(values):
    """splitmix64, as in realrun/network/network.cpp; for an array of numpy.uint64, which wraps around as required."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def mixed(value):
    return int(mix(np.array([value % 2**64], dtype=np.uint64))[0])


def initial(name, shape, deviation, seed):
    start = len(name)
    for letter in name.encode():
        start = mixed(start ^ letter)
    start ^= mixed(seed)
    places = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(start)
    unit = (mix(places) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return (unit * 3.0**0.5 * float(np.float32(deviation))).astype(np.float32).reshape(shape)


def corpus(first, count, model, seed):
    """Tokens and targets, one row per sample, equal to those of Corpus::microbatch."""
    size, factor = model["vocab"], model["vocab"] // 2 + 1
    while np.gcd(factor, size) != 1:
        factor += 1
    tokens = np.zeros((count, model["sequence_length"] + 1), dtype=np.int64)
    for item in range(count):
        start = mixed(seed ^ mixed(first + item))
        tokens[item, 0] = start % size
        chances = mix(np.uint64(start) + np.arange(1, 2 * model["sequence_length"], 2, dtype=np.uint64))
        for position, chance in enumerate(chances.tolist()):
            follows = (tokens[item, position] * factor + 1) % size
            tokens[item, position + 1] = chance // 8 % size if chance % 8 == 0 else follows
    return tokens[:, :-1], tokens[:, 1:]


def parameters_of(model, seed):
    hidden, ffn, kv_heads, width = model["hidden"], model["ffn"], model["kv_heads"], model["head_dim"]
    found = {}

    def add(name, shape, deviation, value=0.0):
        values = initial(name, shape, deviation, seed) if deviation else np.full(shape, value, dtype=np.float32)
        found[name] = torch.tensor(values, device=device, requires_grad=True)

    def linear(name, rows, columns, bias=True):
        add(f"{name}.weight", (rows, columns), np.float32(1) / np.sqrt(np.float32(columns)))
        if bias and model["biases"]:
            add(f"{name}.bias", (rows,), 0.02)

    def norm(name):
        add(f"{name}.gain", (hidden,), 0, 1.0)
        if model["norm"] == "layernorm":
            add(f"{name}.bias", (hidden,), 0)

    add("embedding.table", (model["vocab"], hidden), 0.1)
    if model["positions"] == "learned":
        add("embedding.positions", (model["sequence_length"], hidden), 0.1)
    for number in range(model["layers"]):
        block = f"block.{number}"
        norm(f"{block}.attention.norm")
        linear(f"{block}.attention.qkv", (model["heads"] + 2 * kv_heads) * width, hidden)
        linear(f"{block}.attention.output", hidden, model["heads"] * width)
        norm(f"{block}.mlp.norm")
        linear(f"{block}.mlp.up", (2 if model["gated_mlp"] else 1) * ffn, hidden)
        linear(f"{block}.mlp.down", hidden, ffn)
    norm("head.norm")
    if not model["tied_embeddings"]:
        linear("head", model["vocab"], hidden, bias=False)
    return found


def loss_of(model, weights, tokens, targets):
    batch, length = tokens.shape
    heads, kv_heads, width = model["heads"], model["kv_heads"], model["head_dim"]

    def linear(name, x):
        return functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name, x):
        if model["norm"] == "layernorm":
            return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.gain"], weights[f"{name}.bias"], 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weights[f"{name}.gain"]

    def rotated(x):
        half = width // 2
        frequencies = 10000.0 ** (-2.0 * torch.arange(half, device=device, dtype=torch.float64) / (2 * half))
        angles = torch.outer(torch.arange(length, device=device, dtype=torch.float64), frequencies)
        cosine, sine = (f(angles).float().view(1, length, 1, 1, half) for f in (torch.cos, torch.sin))
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cosine - second * sine, first * sine + second * cosine, rest), dim=-1)

    x = weights["embedding.table"][tokens]
    if model["positions"] == "learned":
        x = x + weights["embedding.positions"]
    later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    for number in range(model["layers"]):
        block = f"block.{number}"
        # Each key/value head follows the query heads that read it.
        slots = linear(f"{block}.attention.qkv", norm(f"{block}.attention.norm", x))
        slots = slots.view(batch, length, kv_heads, heads // kv_heads + 2, width)
        values = slots[..., -1, :].permute(0, 2, 1, 3).unsqueeze(2)
        if model["positions"] == "rotary":
            slots = rotated(slots[..., :-1, :])
            queries, keys = slots[..., :-1, :], slots[..., -1, :]
        else:
            queries, keys = slots[..., :-2, :], slots[..., -2, :]
        scores = queries.permute(0, 2, 3, 1, 4) @ keys.permute(0, 2, 3, 1).unsqueeze(2) / width**0.5
        attended = scores.masked_fill(later, float("-inf")).softmax(-1) @ values
        x = x + linear(f"{block}.attention.output", attended.permute(0, 3, 1, 2, 4).reshape(batch, length, -1))
        up = linear(f"{block}.mlp.up", norm(f"{block}.mlp.norm", x))
        if model["gated_mlp"]:
            up = functional.silu(up[..., 0::2]) * up[..., 1::2]
        else:
            up = functional.gelu(up, approximate="tanh")
        x = x + linear(f"{block}.mlp.down", up)
    head = weights["embedding.table"] if model["tied_embeddings"] else weights["head.weight"]
    logits = functional.linear(norm("head.norm", x), head)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, samples, chunk, steps, rate, seed):
    weights = parameters_of(model, seed)
    optimizer = torch.optim.Adam(weights.values(), lr=rate)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for first in range(0, samples, chunk):
            tokens, targets = (torch.tensor(part, device=device)
                               for part in corpus(step * samples + first, chunk, model, seed))
            loss = loss_of(model, weights, tokens, targets) * chunk / samples
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="the output of `flopcast run -o`")
    parser.add_argument("-o", dest="output", help="JSON file for the losses of both")
    arguments = parser.parse_args()
    model, precision, samples, chunk, ours, rate, seed = read_run(arguments.run)
    check_finite(arguments.run, ours)
    if torch is None:
        print(f"left out: no PyTorch and numpy here ({missing}); {len(ours)} losses in {precision} to compare")
        sys.exit(LEFT_OUT)
    theirs = train(model, samples, chunk, len(ours), rate, seed)
    check_finite("PyTorch", theirs)
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "dtype": precision, "flopcast": ours, "pytorch": theirs}, file)
    print("| step | flopcast | PyTorch | difference |\n|--:|--:|--:|--:|")
    for step, (own, other) in enumerate(zip(ours, theirs)):
        print(f"| {step} | {own:.6f} | {other:.6f} | {own / other - 1:+.1e} |")
    worst, of_changes = distances(ours, theirs)
    tolerance, most = TOLERANCES[precision], OF_CHANGES[precision]
    print(f"\nLosses in {precision} differ by {worst:.1e} at most ({tolerance:.0e} allowed); their changes "
          f"by {of_changes:.1e} of the largest ({most:.0e} allowed).\n")
    sys.exit(0 if worst <= tolerance and of_changes <= most else DIFFERS)


missing = ""
try:
    import numpy as np
    import torch
    from torch.nn import functional

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
except (ImportError, OSError) as error:  # OSError: a library of PyTorch cannot be loaded
    torch, missing = None, str(error).split("\n", maxsplit=1)[0]

if __name__ == "__main__":
    main()
