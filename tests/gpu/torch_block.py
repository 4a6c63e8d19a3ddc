"""Times training steps of Llama and mixture-of-experts blocks under PyTorch and compares them with flopcast's forecast.

One GPU: forward, backward and AdamW of the blocks with embedding and head, in bf16 throughout, or by FSDP2 on one rank
with weights in fp32. Eager and compiled, bf16 and fp8, batches of 1 to 8, sequences of 2k to 32k, with and without
recomputation. Attention is torch's scaled_dot_product_attention; fp8 is torchao's where that is installed, else linears
scaled by tensor as torchao's are; experts are multiplied by torch's grouped product where it has one, else one by one.

Writes rows {id, job, measured, software} that `flopcast validate --published FOLDER` and `flopcast fit` read, and
prints a table. Each row is measured in a process of its own, which is ended after --row-seconds: a row that hangs, runs
out of memory or aborts loses itself only. Rows that the file has are not measured again. Exits with 1 where a row
fails, with 2 where flopcast refuses a job, with 3 where rows remain for want of time, with 77 where PyTorch is missing,
with 4 where it sees no GPU, with 78 where all is measured and forecasts miss by more than MOST.
"""

import argparse
import contextlib
import ctypes
import datetime
import gc
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

FAILED = 1
BAD_INPUT = 2
INCOMPLETE = 3
NO_GPU = 4
LEFT_OUT = 77
MISSED = 78
# Allowed mean error in percent: of steps with the catalogue's figures and with a measured profile, and of memory.
MOST = {"catalogue": 12, "profile": 8, "reserved": 6, "allocated": 6}
GIB = 2.0**30
NO_TIME = "no time"
# Set for the process that replaces one whose GPU context the grouped product has broken.
NOT_GROUPED = "TORCH_BLOCK_NOT_GROUPED"
KILL_AFTER = 5

LLAMA = {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000}
MIXTURE = {**LLAMA, "hidden": 2048, "heads": 16, "kv_heads": 4, "ffn": 8192,
           "experts": {"count": 16, "top_k": 2, "ffn": 4096}}
SMALL = {"hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 256}
SMALL_MIXTURE = {**SMALL, "experts": {"count": 4, "top_k": 2, "ffn": 64}}


def case(name, shape, layers, batch, length, precision="bf16", compiled=False, recompute=False, fsdp=False):
    return {"name": name, "shape": shape, "layers": layers, "batch": batch, "length": length, "precision": precision,
            "compiled": compiled, "recompute": recompute, "fsdp": fsdp}


# The most informative first: a run that exceeds its time still has the beginning.
CASES = [
    case("llama", LLAMA, 4, 4, 4096),
    case("llama", LLAMA, 4, 4, 4096, compiled=True),
    case("mixture", MIXTURE, 4, 4, 4096),
    case("llama", LLAMA, 4, 4, 4096, precision="fp8", compiled=True),
    case("llama", LLAMA, 4, 4, 4096, fsdp=True),
    case("llama", LLAMA, 4, 1, 2048),
    case("llama", LLAMA, 4, 8, 2048, compiled=True),
    case("llama", LLAMA, 4, 8, 4096, recompute=True),
    case("llama", LLAMA, 2, 1, 32768),
    case("mixture", MIXTURE, 4, 4, 4096, compiled=True),
    case("llama", LLAMA, 4, 4, 4096, compiled=True, fsdp=True),
    case("llama", LLAMA, 4, 8, 2048, precision="fp8", compiled=True),
    case("llama", LLAMA, 4, 4, 4096, precision="fp8"),
    case("llama", LLAMA, 4, 1, 8192),
    case("llama", LLAMA, 2, 1, 32768, compiled=True, recompute=True),
    case("mixture", MIXTURE, 4, 8, 2048, recompute=True),
    case("mixture", MIXTURE, 4, 1, 8192),
    case("llama", LLAMA, 4, 2, 16384, recompute=True),
    case("llama", LLAMA, 4, 8, 2048),
    case("mixture", MIXTURE, 4, 4, 4096, fsdp=True),
]
SMALL_CASES = [
    case("llama", SMALL, 2, 2, 32),
    case("llama", SMALL, 2, 2, 32, compiled=True),
    case("mixture", SMALL_MIXTURE, 2, 2, 32, recompute=True),
    case("llama", SMALL, 2, 2, 32, precision="fp8"),
    case("llama", SMALL, 2, 2, 32, fsdp=True),
]


def title(one):
    words = [one["name"], f"{one['layers']}l", f"b{one['batch']}", f"s{one['length']}", one["precision"]]
    words += [word for word in ("compiled", "recompute", "fsdp") if one[word]]
    return "-".join(words)


def row_of(one, device, grouped):
    """The job with which a user would forecast the step, in the format of user-defined rows."""
    shape = one["shape"]
    model = {**shape, "layers": one["layers"], "sequence_length": one["length"], "norm": "rmsnorm", "gated_mlp": True,
             "biases": False, "positions": "rotary", "tied_embeddings": False}
    layout = {"micro_batch_size": one["batch"], "global_batch_size": one["batch"],
              "recompute": "full" if one["recompute"] else "none"}
    training = {"precision": one["precision"], "optimizer": "adam"}
    # The first version keeps the same tensors as an eager loss; later ones compile the loss with the blocks.
    software = {"stack": "torchtitan" if one["compiled"] else "torchtitan@2024-06", "compile": one["compiled"]}
    note = "peak reserved memory"
    if one["fsdp"]:
        note += "; on one rank FSDP2 sends nothing: casts and copies only"
        layout.update(data_parallel="fsdp", zero=3)
    else:
        training.update(master_weights=False, gradient_dtype="bf16", moment_dtype="bf16")
    if one["precision"] == "fp8":
        software.update(fp8_recipe="tensorwise", fp8_parameters=False)
    if "experts" in shape:
        software["grouped_kernel"] = "one" if grouped else "per_expert"
    return {"id": title(one), "source": "tests/gpu/torch_block.py",
            "job": {"model": model, "cluster": {"name": "one-gpu", "device": device}, "layout": layout,
                    "training": training},
            "software": software, "note": note}


def forecast(arguments, row, profile=None):
    job = {**row["job"], "training": {**row["job"]["training"], **row["software"]}}
    command = [arguments.flopcast, "simulate", "-", "--format", "json"] + (["--profile", profile] if profile else [])
    answer = subprocess.run(command, input=json.dumps(job), text=True, capture_output=True, check=False)
    if answer.returncode not in (0, 3):
        print(f"error: {row['id']}: flopcast exits with {answer.returncode}: {answer.stderr.strip()}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    result = json.loads(answer.stdout)
    memory = result["memory"]
    return {"iteration_s": result["iteration"]["time_s"], "interval": result.get("step_time_interval"),
            "allocated_gib": memory["peak_gib"], "reserved_gib": memory["reserved_gib"],
            "shown_gib": memory["shown_gib"]}


class NotHere(Exception):
    """This PyTorch or GPU does not support a case."""


def build_modules():
    """Modules derive from torch's classes, so they are defined once torch is loaded."""

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

    def attend(query, key, value):
        if hasattr(functional, "scaled_dot_product_attention"):
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        # PyTorch before 2.0.
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ value

    class Attention(nn.Module):
        def __init__(self, shape):
            super().__init__()
            hidden, self.heads, self.kv_heads = shape["hidden"], shape["heads"], shape["kv_heads"]
            self.width = hidden // self.heads
            self.query = nn.Linear(hidden, hidden, bias=False)
            self.key = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
            self.value = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
            self.output = nn.Linear(hidden, hidden, bias=False)

        def forward(self, x, cosine, sine):
            batch, length, hidden = x.shape

            def split(y, count):
                return y.view(batch, length, count, self.width).transpose(1, 2)

            shared = self.heads // self.kv_heads
            query = rotate(split(self.query(x), self.heads), cosine, sine)
            key = rotate(split(self.key(x), self.kv_heads), cosine, sine).repeat_interleave(shared, dim=1)
            value = split(self.value(x), self.kv_heads).repeat_interleave(shared, dim=1)
            y = attend(query, key, value)
            return self.output(y.transpose(1, 2).reshape(batch, length, hidden))

    class Mlp(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.gate = nn.Linear(shape["hidden"], shape["ffn"], bias=False)
            self.up = nn.Linear(shape["hidden"], shape["ffn"], bias=False)
            self.down = nn.Linear(shape["ffn"], shape["hidden"], bias=False)

        def forward(self, x):
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    class Experts(nn.Module):
        def __init__(self, shape, grouped):
            super().__init__()
            experts, hidden = shape["experts"], shape["hidden"]
            self.count, self.top_k, self.grouped = experts["count"], experts["top_k"], grouped
            self.router = nn.Linear(hidden, self.count, bias=False)

            def weights(inputs, outputs):
                return nn.Parameter(torch.randn(self.count, outputs, inputs) / inputs**0.5)

            self.gate, self.up = weights(hidden, experts["ffn"]), weights(hidden, experts["ffn"])
            self.down = weights(experts["ffn"], hidden)

        def multiply(self, rows, weights, ends, counts):
            if self.grouped:
                return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
            return torch.cat([functional.linear(part, weight) for part, weight in zip(rows.split(counts), weights)])

        def forward(self, x):
            tokens = x.flatten(0, 1)
            scores, chosen = self.router(tokens).float().softmax(-1).topk(self.top_k, dim=-1)
            scores = scores / scores.sum(-1, keepdim=True)
            order = chosen.flatten().argsort(stable=True)
            # bincount would wait for the GPU.
            of_expert = torch.histc(chosen.flatten().float(), bins=self.count, min=0, max=self.count).to(torch.int64)
            ends = of_expert.cumsum(0).to(torch.int32)
            counts = None if self.grouped else of_expert.tolist()
            rows = tokens[order // self.top_k]
            inner = functional.silu(self.multiply(rows, self.gate, ends, counts))
            inner = inner * self.multiply(rows, self.up, ends, counts)
            outputs = self.multiply(inner, self.down, ends, counts)
            outputs = outputs * scores.flatten()[order].unsqueeze(-1).to(outputs.dtype)
            return torch.zeros_like(tokens).index_add(0, order // self.top_k, outputs).view_as(x)

    class Block(nn.Module):
        def __init__(self, shape, grouped):
            super().__init__()
            self.norm, self.mlp_norm = RmsNorm(shape["hidden"]), RmsNorm(shape["hidden"])
            self.attention = Attention(shape)
            self.mlp = Experts(shape, grouped) if "experts" in shape else Mlp(shape)

        def forward(self, x, cosine, sine):
            x = x + self.attention(self.norm(x), cosine, sine)
            return x + self.mlp(self.mlp_norm(x))

    class Network(nn.Module):
        def __init__(self, one, grouped):
            super().__init__()
            shape = one["shape"]
            self.recompute = one["recompute"]
            self.embedding = nn.Embedding(shape["vocab"], shape["hidden"])
            self.blocks = nn.ModuleList(Block(shape, grouped) for _ in range(one["layers"]))
            self.norm = RmsNorm(shape["hidden"])
            self.head = nn.Linear(shape["hidden"], shape["vocab"], bias=False)
            half = shape["hidden"] // shape["heads"] // 2
            angles = torch.outer(torch.arange(one["length"]), 5e5 ** (-torch.arange(half) / half))
            self.register_buffer("cosine", angles.cos(), persistent=False)
            self.register_buffer("sine", angles.sin(), persistent=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                if self.recompute:
                    x = checkpoint(block, x, self.cosine, self.sine, use_reentrant=False,
                                   preserve_rng_state=False)
                else:
                    x = block(x, self.cosine, self.sine)
            return self.head(self.norm(x))

    return Network


def loss_of(logits, targets):
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def to_float8(x, dtype):
    """Returns the numbers, scaled by the largest magnitude, and the factor that undoes it."""
    scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x.float() / scale).to(dtype), scale


def own_float8_linear():
    """y = x·wT and its gradients in 8 bits by cuBLASLt: e4m3, gradients e5m2, one scale per tensor."""

    def product(a, b_transposed, fast=False):
        """a·b of (numbers, scale), with b transposed: the layout that cuBLASLt supports."""
        return torch._scaled_mm(a[0], b_transposed[0].t(), scale_a=a[1], scale_b=b_transposed[1],
                                out_dtype=torch.bfloat16, use_fast_accum=fast)

    def flipped(a):
        return a[0].t().contiguous(), a[1]

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            # As in torchao: sums of gradients are exact.
            return product(to_float8(x, torch.float8_e4m3fn), to_float8(weight, torch.float8_e4m3fn), fast=True)

        @staticmethod
        def backward(ctx, gradient):
            x, weight = (to_float8(saved, torch.float8_e4m3fn) for saved in ctx.saved_tensors)
            gradient = to_float8(gradient.contiguous(), torch.float8_e5m2)
            return product(gradient, flipped(weight)), product(flipped(gradient), flipped(x))

    class Float8Linear(nn.Linear):
        def forward(self, x):
            return Product.apply(x.flatten(0, -2), self.weight).view(*x.shape[:-1], self.out_features)

    return Float8Linear


def with_float8(model):
    """Makes the linears of blocks multiply in 8 bits; returns the name of the implementation."""
    if not (on_gpu and hasattr(torch, "_scaled_mm") and torch.cuda.get_device_capability() >= (8, 9)):
        raise NotHere("no 8-bit products")
    try:
        from torchao.float8 import convert_to_float8_training
    except ImportError:
        kind = own_float8_linear()
        for block in model.blocks:
            for module in block.modules():
                if isinstance(module, nn.Linear):
                    module.__class__ = kind
        return "torch._scaled_mm"
    convert_to_float8_training(model, module_filter_fn=lambda _, name: name.startswith("blocks."))
    return "torchao"


def with_fsdp(model):
    if not on_gpu:
        raise NotHere("FSDP2 needs a GPU here")
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError as error:
        raise NotHere(f"no FSDP2: {error}") from error
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def has_grouped_product():
    """True if one kernel can multiply all experts, forward and backward; tested on a small product."""
    if not (on_gpu and hasattr(torch, "_grouped_mm")) or NOT_GROUPED in os.environ:
        return False
    try:
        rows = torch.randn(64, 32, device=device, dtype=torch.bfloat16, requires_grad=True)
        weights = torch.randn(2, 48, 32, device=device, dtype=torch.bfloat16, requires_grad=True)
        ends = torch.tensor([27, 64], device=device, dtype=torch.int32)
        result = torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
        gradient = torch.randn_like(result)  # the gradient of a sum would be expanded, with strides that backward refuses
        result.backward(gradient)
        parts = list(zip(rows.detach().split([27, 37]), weights.detach(), gradient.split([27, 37])))
        pairs = [(result.detach(), torch.cat([part @ weight.t() for part, weight, _ in parts])),
                 (rows.grad, torch.cat([of_part @ weight for _, weight, of_part in parts])),
                 (weights.grad, torch.stack([of_part.t() @ part for part, _, of_part in parts]))]
        if all(torch.allclose(seen.float(), plain.float(), rtol=0.02, atol=0.2) for seen, plain in pairs):
            return True
        print("no grouped product: its results differ from plain products", file=sys.stderr)
    except Exception as error:  # of any kind: experts are then multiplied one by one
        print(f"no grouped product: {type(error).__name__}: {error}", file=sys.stderr)
        if "CUDA error" in str(error):
            os.environ[NOT_GROUPED] = "1"
            start_again()
    return False


def start_again():
    """Restarts the process, because nothing runs in it after a GPU error."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv])


def refuse_wide_weights(module, _):
    """Called before a module's forward pass: on one rank, some versions of FSDP2 omit the cast."""
    if module.weight.dtype != torch.bfloat16:
        raise NotHere(f"FSDP2 on one rank leaves weights in {module.weight.dtype}")


def measure(one, grouped, repetitions):
    """Median seconds of a step and its memory, with every step's time; its configuration; when it was timed."""
    torch.manual_seed(1)
    software = {}
    # Created on the GPU, because a host is slow at random numbers. PyTorch before 2.0 does not support this context.
    with torch.device(device) if hasattr(torch.device, "__enter__") else contextlib.nullcontext():
        model = network(one, grouped)
    model = model.to(device)
    if not one["fsdp"]:
        model = model.bfloat16()
    if one["precision"] == "fp8":
        software["fp8"] = with_float8(model)
    hooks = []
    if one["fsdp"]:
        with_fsdp(model)
        # The first module with weights, outside of compiled code.
        hooks.append(model.embedding.register_forward_pre_hook(refuse_wide_weights))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"fused": True} if on_gpu else {}))
    loss = loss_of
    if one["compiled"]:
        if not hasattr(torch, "compile"):
            raise NotHere("no torch.compile")
        from torch._dynamo.utils import counters

        counters.clear()
        for block in model.blocks:
            block.forward = torch.compile(block.forward, dynamic=False)
        loss = torch.compile(loss_of, dynamic=False)
    tokens = torch.randint(one["shape"]["vocab"], (one["batch"], one["length"] + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
        while hooks:
            hooks.pop().remove()
    if one["compiled"]:
        software["graph_breaks"] = sum(counters["graph_break"].values())
    # As in training, the host does not wait for the end of a step.
    if on_gpu:
        # Memory for building and compiling is not part of a step.
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
        torch.cuda.synchronize()
        began = time.monotonic()
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        times = [begin.elapsed_time(end) / 1e3 for begin, end in zip(marks, marks[1:])]
        free, whole = torch.cuda.mem_get_info()
        memory = {"peak_memory_gib": torch.cuda.max_memory_reserved() / GIB,
                  "allocated_gib": torch.cuda.max_memory_allocated() / GIB, "shown_gib": (whole - free) / GIB}
    else:
        times, memory, began = [], {}, time.monotonic()
        for _ in range(repetitions):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
    measured = {"iteration_s": statistics.median(times), **memory, "steps_s": times}
    return measured, software, (began, time.monotonic())


class Clocks:
    """Clock (MHz) and power (W) from nvidia-smi, four times a second, with the time of each reading; empty without it."""

    def __init__(self):
        self.process, self.samples = None, []
        words = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "250"]
        if not (on_gpu and shutil.which(words[0])):
            return
        if shutil.which("stdbuf"):  # otherwise a pipe may deliver many lines at once, too late
            words = ["stdbuf", "-oL", *words]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                clock, power = (float(word) for word in line.split(","))
                self.samples.append((time.monotonic(), clock, power))

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.reader.join(5)

    def medians(self, begin, end):
        inside = [sample for sample in self.samples if begin <= sample[0] <= end]
        if not inside:
            return {}
        _, clock, power = zip(*inside)
        return {"clock_mhz": statistics.median(clock), "power_w": statistics.median(power)}


def measure_row(one, grouped, repetitions):
    """Measurements of a row, or the reason why there are none, as keys of the row."""
    row = {"libraries": libraries(), "grouped": grouped}
    if on_gpu:
        row["allocated_before_gib"] = torch.cuda.memory_allocated() / GIB
    clocks, span = Clocks(), None
    try:
        row["measured"], of_case, span = measure(one, grouped, repetitions)
        row["libraries"].update(of_case)
    except NotHere as reason:
        row["left_out"] = str(reason)
    except Exception as error:  # of any kind: what PyTorch does not support is reported
        if "out of memory" in str(error):
            row.update(left_out="out of memory", oom=True)
        else:
            row["failed"] = f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0][:200]}"
            traceback.print_exc()
    clocks.stop()
    row["clocks"] = clocks.medians(*span) if span else {}
    return row


def measure_in_process(one, arguments, seconds):
    """The same in a separate process, which is limited to `seconds`."""
    words = [sys.executable, __file__, "--row", title(one), "--repetitions", str(arguments.repetitions)]
    began = time.monotonic()
    # Through a file, because a process that cannot be ended would keep a pipe open. In this process group, so that the
    # row ends together with this script.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        process = subprocess.Popen(words + (["--small"] if arguments.small else []), stdin=subprocess.DEVNULL, stdout=out,
                                   preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))
        for end, signaled in ((max(1, seconds - KILL_AFTER), process.terminate), (KILL_AFTER, process.kill), (2, None)):
            try:
                process.wait(end)
                break
            except subprocess.TimeoutExpired:
                if signaled is not None:
                    signaled()
        out.seek(0)
        text = out.read().strip()
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(text.splitlines()[-1])
    if time.monotonic() - began > max(1, seconds - KILL_AFTER) - 1:
        return {"failed": f"hung after {time.monotonic() - began:.0f} s", "hung": True}
    if process.returncode in (LEFT_OUT, NO_GPU):
        return {"left_out": text or "left out", "no_torch": process.returncode}
    return {"failed": f"its process ended with {process.returncode}"}


def libraries():
    found = {"torch": torch.__version__}
    if on_gpu:
        found.update(cuda=torch.version.cuda, gpu=torch.cuda.get_device_name(),
                     allocator=os.environ[ALLOCATOR])
    return found


# Names of the forecast and of the measurement of each kind of memory.
MEMORY = {"reserved": ("reserved_gib", "peak_memory_gib"), "allocated": ("allocated_gib", "allocated_gib")}


def percent(predicted, seen):
    return 100 * (predicted / seen - 1)


def table_of(rows):
    """Markdown: each row's step and memory next to the forecast; of two figures the first is the forecast."""
    lines = ["| row | forecast (s) | by the profile (s) | measured (s) | error % | profile % | reserved (GiB) "
             "| error % | allocated (GiB) | error % | |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    for row in rows:
        predicted, profiled, seen = row["forecast"], row.get("by_profile"), row.get("measured", {})
        cells = [row["id"], f"{predicted['iteration_s']:.4f}", f"{profiled['iteration_s']:.4f}" if profiled else ""]
        if "iteration_s" in seen:
            cells += [f"{seen['iteration_s']:.4f}", f"{percent(predicted['iteration_s'], seen['iteration_s']):+.1f}",
                      f"{percent(profiled['iteration_s'], seen['iteration_s']):+.1f}" if profiled else ""]
        else:
            cells += ["", "", ""]
        for forecasted, measured in MEMORY.values():
            cells += ([f"{predicted[forecasted]:.1f} / {seen[measured]:.1f}",
                       f"{percent(predicted[forecasted], seen[measured]):+.1f}"] if measured in seen
                      else [f"{predicted[forecasted]:.1f} /", ""])
        why = f"failed: {row['failed']}" if "failed" in row else row.get("left_out", "")
        cells.append(why.replace("|", "/"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean_errors(rows):
    """Mean absolute errors in percent, by forecast quantity."""
    timed = [row for row in rows if "iteration_s" in row.get("measured", {})]
    errors = {"catalogue": [percent(row["forecast"]["iteration_s"], row["measured"]["iteration_s"]) for row in timed],
              "profile": [percent(row["by_profile"]["iteration_s"], row["measured"]["iteration_s"]) for row in timed
                          if "by_profile" in row]}
    for what, (predicted, seen) in MEMORY.items():
        errors[what] = [percent(row["forecast"][predicted], row["measured"][seen]) for row in timed
                        if seen in row["measured"]]
    return {what: statistics.mean(abs(error) for error in values) for what, values in errors.items() if values}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flopcast", default="./flopcast", help="the program that forecasts")
    parser.add_argument("--device", default="h200", help="the GPU, by the catalogue's name")
    parser.add_argument("--profile", help="a device profile, for a second forecast")
    parser.add_argument("--row", metavar="ID", help="measure this row in this process and print it as JSON")
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N rows, the most informative ones")
    parser.add_argument("--row-seconds", type=float, default=60, help="maximum seconds per row (60)")
    parser.add_argument("--repetitions", type=int, default=15, help="measured steps (15)")
    parser.add_argument("--seconds", type=float, default=240, help="no row begins after this time (240)")
    parser.add_argument("--small", action="store_true", help="tiny networks, on a CPU too; errors are not judged")
    parser.add_argument("--dry-run", action="store_true", help="forecasts only, without PyTorch")
    parser.add_argument("--table", metavar="FILE", help="only print the table of the rows in this file")
    parser.add_argument("-o", dest="output", help="JSON file for the rows; rows that it contains are not measured again")
    arguments = parser.parse_args()
    if not (arguments.output or arguments.table or arguments.row):
        parser.error("-o, --table or --row is required")
    return arguments


def report(rows, judged):
    """Prints the table and mean errors; returns True if one exceeds its limit."""
    print(table_of(rows))
    errors = mean_errors(rows)
    for what, error in errors.items():
        print(f"\nMean error, {what}: {error:.1f} %{f' (allowed: {MOST[what]})' if judged else ''}")
    print()
    return judged and any(error > MOST[what] for what, error in errors.items())


def read_rows(path):
    """All rows of a file, including those without a measurement; none if the file is missing or incomplete."""
    try:
        document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return [*document["rows"], *document["left_out"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


TAKEN_OVER = ("date", "measured", "libraries", "clocks", "allocated_before_gib", "oom", "failed", "left_out", "grouped")


def take_over(row, old):
    """Adopts an earlier measurement of the row, or that it does not fit the GPU. Failed rows are tried again."""
    if "measured" in old or old.get("oom"):
        row.update({key: old[key] for key in TAKEN_OVER if key in old})


def write_rows(path, meta, rows):
    # Only measured rows are listed as rows, as readers expect.
    document = {"meta": meta, "rows": [row for row in rows if "measured" in row],
                "left_out": [row for row in rows if "measured" not in row]}
    text = json.dumps(document, indent=1)
    if pathlib.Path(path).is_file() or not pathlib.Path(path).exists():
        part = pathlib.Path(f"{path}.part")  # a killed process leaves a complete file
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    else:  # /dev/null
        pathlib.Path(path).write_text(text, encoding="utf-8")


def be_row(arguments):
    """Measures one row in this process."""
    load_torch()
    if torch is None:
        print(f"left out: no PyTorch here ({missing})")
        sys.exit(LEFT_OUT)
    if not (on_gpu or arguments.small):
        print("left out: PyTorch sees no GPU")
        sys.exit(NO_GPU)
    one = next((one for one in CASES + SMALL_CASES if title(one) == arguments.row), None)
    if one is None:
        print(f"error: --row: {arguments.row} is not a row", file=sys.stderr)
        sys.exit(BAD_INPUT)
    grouped = "experts" in one["shape"] and has_grouped_product()
    print(json.dumps(measure_row(one, grouped, arguments.repetitions)))


def main():
    arguments = parse_arguments()
    if arguments.row:
        be_row(arguments)
        return
    if arguments.table:
        report(read_rows(arguments.table), not arguments.small)
        return
    began = time.monotonic()
    meta = {"about": "Steps under PyTorch on one GPU, written by tests/gpu/torch_block.py; peak_memory_gib is what the "
                     "allocator reserved, shown_gib what nvidia-smi would show.",
            "date": datetime.date.today().isoformat()}
    before = {} if arguments.dry_run else {row["id"]: row for row in read_rows(arguments.output)}

    cases = (SMALL_CASES if arguments.small else CASES)[:arguments.rows]
    found, forecasts = {}, {}
    for one in cases:
        found[title(one)] = {}
        take_over(found[title(one)], before.get(title(one), {}))
    waiting = [one for one in cases if not any(key in found[title(one)] for key in ("measured", "left_out", "failed"))]
    for one in waiting:
        found[title(one)]["left_out"] = "dry run" if arguments.dry_run else NO_TIME

    def row_for(one):
        measured = found[title(one)]
        row = row_of(one, arguments.device, measured.get("grouped", False))
        row["date"] = meta["date"]
        row.update(measured)
        key = (title(one), measured.get("grouped", False))
        if key not in forecasts:
            forecasts[key] = {"forecast": forecast(arguments, row)}
            if arguments.profile:
                forecasts[key]["by_profile"] = forecast(arguments, row, arguments.profile)
        return {**row, **forecasts[key]}

    for one in [] if arguments.dry_run else waiting:
        left = arguments.seconds - (time.monotonic() - began)
        if left < min(2 * KILL_AFTER, arguments.row_seconds):
            break
        print(f"{title(one)} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
        measured = measure_in_process(one, arguments, min(arguments.row_seconds, left))
        if measured.get("no_torch"):
            print(table_of([row_for(each) for each in cases]) if len(waiting) < len(cases) else "", end="")
            print(measured["left_out"])
            sys.exit(measured["no_torch"])
        found[title(one)] = measured
        write_rows(arguments.output, meta, [row_for(each) for each in cases])
    rows = [row_for(each) for each in cases]
    write_rows(arguments.output, meta, rows)
    missed = report(rows, not arguments.small)
    if any("failed" in row for row in rows) or not (arguments.dry_run or any("measured" in row for row in rows)):
        sys.exit(FAILED)
    if any(row.get("left_out") == NO_TIME for row in rows):
        sys.exit(INCOMPLETE)
    sys.exit(MISSED if missed else 0)


# As set by torchtitan's launcher; read when PyTorch is loaded.
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
missing, on_gpu, device, torch = "", False, "cpu", None


def load_torch():
    """Needed by processes of rows only; they share the disk cache."""
    global torch, nn, functional, checkpoint, on_gpu, device, network, missing
    os.environ.setdefault(ALLOCATOR, "expandable_segments:True")
    try:
        import torch as found
        from torch import nn
        from torch.nn import functional
        from torch.utils.checkpoint import checkpoint

        torch = found
        on_gpu = torch.cuda.is_available()
        device = "cuda" if on_gpu else "cpu"
        network = build_modules()
    except (ImportError, OSError) as error:  # OSError: a library of PyTorch cannot be loaded
        torch, missing = None, str(error).split("\n", maxsplit=1)[0]


if __name__ == "__main__":
    main()
