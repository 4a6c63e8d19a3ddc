# %% [markdown]
# # Plan a cluster
# How many GPUs does a 70B model need to train on 2T tokens within 45 days, with which layout, and what does it cost?

# %%
import flopcast

question = dict(model="llama3-70b", cluster="96xdgx-h100", gbs=1024, tokens="2T", price=2.5)
plan = flopcast.plan(**question, deadline="45d", top=5)
plan.table()

# %% [markdown]
# The best layout as keys of a job, and its forecast. `plan.best.result` holds everything that `flopcast simulate` prints.

# %%
best = plan.best
print({name: value for name, value in best.layout.to_dict().items() if value is not None})
print(f"{best.result.iteration.time_s:.3g} s a step, {best.result.training.days:.1f} days")

# %% [markdown]
# Does it fit, and what uses the memory?

# %%
step = flopcast.simulate(best.result.job.to_dict())
assert step.fits
step

# %% [markdown]
# Why is another layout slower? The difference by term; the terms add up to the total.

# %%
other = flopcast.simulate(**{**question, "cluster": f"{best.result.job.cluster.nodes}xdgx-h100"}, tp=8, pp=4)
comparison = flopcast.compare(None, step, other)
comparison.table()
