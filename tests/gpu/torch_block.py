"""Times decoder blocks of a Llama under PyTorch, eager and compiled, beside flopcast's forecast of the same model.

One GPU, bf16 weights, no optimizer state but plain SGD: forward, backward and update of `--layers` blocks with embedding
and head. Writes a JSON file and prints a Markdown table. Attention is torch's scaled_dot_product_attention.
"""

import argparse
import json
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x, cosine, sine):
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        hidden, head = shape["hidden"], shape["hidden"] // shape["heads"]
        self.norm, self.mlp_norm = RmsNorm(hidden), RmsNorm(hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, shape["kv_heads"] * head, bias=False)
        self.value = nn.Linear(hidden, shape["kv_heads"] * head, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, shape["ffn"], bias=False)
        self.up = nn.Linear(hidden, shape["ffn"], bias=False)
        self.down = nn.Linear(shape["ffn"], hidden, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, hidden = x.shape
        heads, kv_heads = self.shape["heads"], self.shape["kv_heads"]

        def split(y, count):
            return y.view(batch, length, count, hidden // heads).transpose(1, 2)

        h = self.norm(x)
        query = rotate(split(self.query(h), heads), cosine, sine)
        key = rotate(split(self.key(h), kv_heads), cosine, sine).repeat_interleave(heads // kv_heads, dim=1)
        value = split(self.value(h), kv_heads).repeat_interleave(heads // kv_heads, dim=1)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, length, hidden))
        h = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocab"], shape["hidden"])
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm = RmsNorm(shape["hidden"])
        self.head = nn.Linear(shape["hidden"], shape["vocab"], bias=False)
        half = shape["hidden"] // shape["heads"] // 2
        angles = torch.outer(torch.arange(shape["length"]), 5e5 ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def measure(shape, compiled, repetitions):
    """Median seconds of a step, peak GiB allocated and reserved, and every step's time."""
    torch.manual_seed(1)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = Llama(shape).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step_of = torch.compile(model) if compiled else model
    tokens = torch.randint(shape["vocab"], (shape["batch"], shape["length"]), device="cuda")
    times = []
    for repetition in range(repetitions + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step_of(tokens, tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        if repetition >= 3:
            times.append(begin.elapsed_time(end) / 1e3)
    gib = 2.0**30
    return {
        "step_s": sorted(times)[len(times) // 2],
        "allocated_gib": torch.cuda.max_memory_allocated() / gib,
        "reserved_gib": torch.cuda.max_memory_reserved() / gib,
        "steps_s": times,
    }


def forecast(flopcast, device, shape, compiled):
    job = {
        "model": {
            "layers": shape["layers"], "hidden": shape["hidden"], "heads": shape["heads"],
            "kv_heads": shape["kv_heads"], "ffn": shape["ffn"], "vocab": shape["vocab"],
            "sequence_length": shape["length"], "norm": "rmsnorm", "gated_mlp": True, "biases": False,
            "positions": "rotary", "tied_embeddings": False,
        },
        "cluster": {"name": "one-gpu", "device": device},
        "layout": {"micro_batch_size": shape["batch"], "global_batch_size": shape["batch"]},
        "training": {"precision": "bf16", "optimizer": "sgd", "stack": {"name": "accelerate", "compile": compiled}},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(job, file)
        file.flush()
        answer = subprocess.run([flopcast, "simulate", file.name, "--format", "json"], text=True, capture_output=True,
                                check=False)
    if answer.returncode not in (0, 3):
        sys.exit(f"flopcast: {answer.stderr.strip()}")
    result = json.loads(answer.stdout)
    return {"step_s": result["iteration"]["time_s"], "interval": result.get("step_time_interval")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flopcast", default="./flopcast")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("-o", dest="output", required=True)
    arguments = parser.parse_args()
    rows = []
    for layers, batch, length in ((4, 4, 4096), (4, 1, 4096), (8, 2, 2048)):
        shape = {"layers": layers, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000,
                 "length": length, "batch": batch}
        for compiled in (False, True):
            row = {"shape": shape, "compiled": compiled,
                   "forecast": forecast(arguments.flopcast, arguments.device, shape, compiled)}
            row["measured"] = measure(shape, compiled, arguments.repetitions)
            rows.append(row)
            with open(arguments.output, "w", encoding="utf-8") as file:
                json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": rows}, file)
    print("| layers | batch | length | compiled | forecast (s) | measured (s) | error % | reserved (GiB) |")
    print("|--:|--:|--:|---|--:|--:|--:|--:|")
    for row in rows:
        shape, told, seen = row["shape"], row["forecast"]["step_s"], row["measured"]["step_s"]
        print(f"| {shape['layers']} | {shape['batch']} | {shape['length']} | {'yes' if row['compiled'] else 'no'} | "
              f"{told:.4f} | {seen:.4f} | {100 * (told / seen - 1):+.1f} | {row['measured']['reserved_gib']:.1f} |")
    print()


if __name__ == "__main__":
    main()
