# %% [markdown]
# # Figures for a paper
# A timeline in the style of the pipeline papers, and a sweep as a LaTeX table. Both are text files, SVG and TeX, with the same
# bytes for the same job.

# %%
import flopcast

schedules = flopcast.timeline(pp=4, microbatches=8, schedule="gpipe,1f1b,zb-h1")
with open("schedules.svg", "w", encoding="utf-8") as file:
    file.write(schedules.svg())
schedules

# %% [markdown]
# The bubble as a function of the number of microbatches, from the columns of a sweep.

# %%
job = {"model": "gpt3-13b", "cluster": {"name": "dgx-a100-80g", "nodes": 8},
       "layout": {"tp": 2, "pp": 8, "micro_batch_size": 1, "global_batch_size": 64}}
sweep = flopcast.sweep(job, vary={"gbs": [32, 64, 128, 256]})
table = sweep.table()
assert list(table["bubble"]) == sorted(table["bubble"], reverse=True)
table

# %% [markdown]
# The table of the step, ready for `\input`.

# %%
print(flopcast.simulate(job).tables("latex"))
