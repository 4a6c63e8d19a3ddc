"""flopcast and Calculon over the same 1,000 layouts, SimuMax over its own example (per answer), in one run. Run by hand:

    PYTHONPATH=build/dev/python python3 tests/python/bench_peers.py CALCULON SIMUMAX

CALCULON is a checkout of github.com/calculon-ai/calculon, SIMUMAX one of github.com/MooreThreads/SimuMax (needs sympy and
pandas); "-" omits one. Times are processor times of this process, so that a loaded machine affects ratios least; those of several
cores are wall times. Each is the fastest of several, also for the peers. They measure how long an answer takes, not whether
it is right: the programs model different things. Calculon computes a formula, like our bounds; it simulates no schedule.
"""

import contextlib
import io
import itertools
import json
import os
import pathlib
import random
import sys
import time
import types

import flopcast

JOB = {"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nodes": 64}, "layout": {"global_batch_size": 1536}}
AXES = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4, 8, 16, 32), "micro_batch_size": (1, 2, 4, 8),
        "recompute": ("none", "selective", "full"), "sequence_parallel": (False, True), "zero": (0, 1)}


def layouts(count):
    """Valid layouts, in an order that caches cannot learn."""
    valid = []
    for values in itertools.product(*AXES.values()):
        layout = dict(zip(AXES, values))
        dp = 512 // (layout["tp"] * layout["pp"])
        if 1536 % (dp * layout["micro_batch_size"]) == 0 and not (layout["sequence_parallel"] and layout["tp"] == 1):
            valid.append({**layout, "dp": dp})
    random.Random(1).shuffle(valid)
    return list(itertools.islice(itertools.cycle(valid), count))


def seconds(work, clock=time.process_time, times=3):
    def once():
        start = clock()
        count = work()
        return (clock() - start) / count

    return min(once() for _ in range(times))


def calculon_loop(folder, chosen):
    sys.modules.setdefault("psutil", types.ModuleType("psutil"))
    sys.path.insert(0, str(folder))
    import logging

    from calculon.llm import Llm
    from calculon import System

    log = logging.getLogger("calculon")
    model = json.loads((folder / "models" / "gpt3-175B.json").read_text())
    system = System(json.loads((folder / "systems" / "a100_80g.json").read_text()))
    base = json.loads((folder / "examples" / "3072_t4_p64_d12_mbs4_full.json").read_text())
    application = Llm.Application(model)

    def loop():
        answered = 0
        for layout in chosen:
            execution = dict(base, num_procs=512, tensor_par=layout["tp"], pipeline_par=layout["pp"],
                             data_par=layout["dp"], batch_size=1536, microbatch_size=layout["micro_batch_size"],
                             activation_recompute={"none": "none", "selective": "attn_only", "full": "full"}[layout["recompute"]],
                             tensor_par_comm_type="rs_ag" if layout["sequence_parallel"] else "ar",
                             optimizer_sharding=layout["zero"] > 0)
            with contextlib.suppress(Llm.Error):
                one = Llm(application, log)
                one.compile(system, Llm.Execution.from_json(execution))
                one.run(system)
            answered += 1
        return answered

    return loop


def simumax_loop(folder, chosen):
    sys.path.insert(0, str(folder))
    from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
    from simumax.core.perf_llm import PerfLLM
    from simumax.utils import get_simu_model_config, get_simu_strategy_config, get_simu_system_config

    def loop():
        answered = 0
        for layout in chosen:
            with contextlib.redirect_stdout(io.StringIO()):
                one = PerfLLM()
                strategy = StrategyConfig.init_from_config_file(get_simu_strategy_config("tp1_pp2_dp4_mbs1"))
                one.configure(
                    strategy_config=strategy,
                    model_config=ModelConfig.init_from_config_file(get_simu_model_config("llama3-8b")),
                    system_config=SystemConfig.init_from_config_file(get_simu_system_config("a100_pcie")))
                one.run_estimate()
                one.analysis_cost()
            answered += 1
        return answered

    return loop


def main():
    calculon, simumax = (None if path == "-" else pathlib.Path(path).resolve() for path in sys.argv[1:3])
    chosen = layouts(1000)
    columns = {name: [layout[name] for layout in chosen] for name in AXES}

    def one_by_one(simulated):
        keys = [{name: layout[name] for name in AXES} for layout in chosen]

        def loop():
            # Timed with layouts of its own: repeating the others would only look up cached prices.
            price = flopcast.Pricer(JOB, simulated=simulated)
            for layout in keys:
                price(**layout)
            return len(keys)

        return loop

    def whole(simulated, threads=1):
        def loop():
            return flopcast.prices(JOB, columns, simulated=simulated, threads=threads).rows

        return loop

    def forecasts():
        for layout in chosen[:100]:
            flopcast.simulate(JOB, **{name: layout[name] for name in AXES})
        return 100

    ours = {
        "flopcast.simulate, one call a layout": seconds(forecasts),
        "flopcast.Pricer, one call a layout": seconds(one_by_one(True)),
        "flopcast.Pricer(simulated=False), one call": seconds(one_by_one(False)),
        "flopcast.prices, one call for all": seconds(whole(True)),
        "flopcast.prices(simulated=False), one call": seconds(whole(False), times=20),
        f"the same on all {os.cpu_count()} cores": seconds(whole(False, threads=0), time.perf_counter, times=20),
    }
    peers = {}
    if calculon:
        peers["Calculon's loop"] = seconds(calculon_loop(calculon, chosen))
    if simumax:
        peers["SimuMax's loop (100)"] = seconds(simumax_loop(simumax, chosen[:100]))
    for name, time_s in {**peers, **ours}.items():
        ratios = "".join(f"  {peer_s / time_s:8.0f} x {peer}" for peer, peer_s in peers.items())
        print(f"{name:<46} {1e6 * time_s:10.1f} us a layout{ratios if name in ours else ''}")


if __name__ == "__main__":
    main()
