# %% [markdown]
# # An optimizer over layouts
# `flopcast.plan` searches with bounds; a custom objective needs a custom search. Here scipy's differential evolution prices
# 100,000 layouts one at a time and is penalised if less than a twentieth of a GPU's memory is free.

# %%
import time

import flopcast
from scipy.optimize import differential_evolution

job = {"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nodes": 64}, "layout": {"global_batch_size": 1536},
       "training": {"sequence_length": 2048}}
price = flopcast.Pricer(job, simulated=False)
axes = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4, 8, 16, 32), "micro_batch_size": (1, 2, 3, 4, 6, 8),
        "recompute": (0, 1, 2), "sequence_parallel": (0, 1), "zero": (0, 1)}
asked = 0


def objective(point):
    global asked
    asked += 1
    layout = {name: values[min(int(place), len(values) - 1)] for (name, values), place in zip(axes.items(), point)}
    try:
        one = price(**layout)
    except flopcast.ConfigError:
        return 1e3
    free_share = 1 - one.memory_gib / 80
    return one.time_s if free_share > 0.05 else 1e2 + one.memory_gib


# %%
start = time.time()
while asked < 100_000:
    found = differential_evolution(objective, [(0, len(values)) for values in axes.values()], popsize=40, maxiter=60,
                                   tol=0, polish=False, seed=asked)
print(f"{asked} prices in {time.time() - start:.1f} s")

# %% [markdown]
# The same question as one vectorised call: price every layout of the space and take the best by the same objective.

# %%
space = flopcast.layouts(job)
prices = flopcast.prices(job, {**space, "schedules": space.schedules}, simulated=False)
valid = [index for index in range(space.rows)
         if prices["memory_gib"][index] < 0.95 * 80 and space.schedules[space["schedule"][index]] in ("1f1b", "naive")]
best = min(valid, key=lambda index: prices["time_s"][index])
print(space.keys_of(best), prices["time_s"][best], "found", found.fun)
assert found.fun <= 1.02 * prices["time_s"][best]
