# %% [markdown]
# # Fit to your runs
# Measured steps show how much slower the operators and the network of your cluster are than forecast. This notebook fits one
# factor for each with scipy's least squares on the logarithm of the step time, using custom cost functions.

# %%
import math

import flopcast
from scipy.optimize import least_squares

job = {"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 2},
       "training": {"sequence_length": 4096}, "layout": {"global_batch_size": 64, "zero": 1}}


def forecast(layout, operators, network):
    return flopcast.simulate(
        job, layout=layout,
        operator_time=lambda op, which, seconds: operators * seconds,
        network_time=lambda kind, size, ranks, nodes, seconds: network * seconds,
    ).time_s


# %% [markdown]
# Put your runs here: layouts with measured seconds. These four are synthetic, from a cluster whose operators take 1.15 times
# and whose messages take 1.6 times as long as forecast, so that the fit can be checked.

# %%
layouts = [{"tp": 8, "pp": 2}, {"tp": 2, "pp": 4}, {"tp": 1, "pp": 1, "zero": 3}, {"tp": 4, "pp": 1}]
runs = [(layout, forecast(layout, 1.15, 1.6)) for layout in layouts]

# %%
fit = least_squares(
    lambda factors: [math.log(forecast(layout, *factors) / measured) for layout, measured in runs],
    x0=[1.0, 1.0], bounds=([0.2, 0.2], [5.0, 5.0]))
operators, network = fit.x
print(f"operators x {operators:.3f}, network x {network:.3f}")
assert abs(operators - 1.15) < 0.01 and abs(network - 1.6) < 0.05

# %% [markdown]
# Forecast a layout that was never run on this cluster:

# %%
print(f"{forecast({'tp': 4, 'pp': 4}, operators, network):.3f} s a step")
