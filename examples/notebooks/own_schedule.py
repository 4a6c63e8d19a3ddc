# %% [markdown]
# # A custom schedule
# A function returns the order of actions of every rank; flopcast checks, times and draws it, and forecasts a job with it.

# %%
import flopcast


def all_forward_then_reversed(ranks, microbatches, chunks):
    """GPipe that drains last in, first out."""
    return [
        [f"{rank}F{m}" for m in range(microbatches)] + [f"{rank}B{m}" for m in reversed(range(microbatches))]
        for rank in range(ranks)
    ]


own = flopcast.schedule(all_forward_then_reversed(4, 8, 1))
assert own.check()
own

# %% [markdown]
# Simulate it in arbitrary time units, with a forward pass of 1 and a backward pass of 2.

# %%
ours = own.simulate(forward=1, backward=2)
known = flopcast.schedule("1f1b", pp=4, microbatches=8).simulate(forward=1, backward=2)
print(ours.makespan, known.makespan)
print([rank.peak_in_flight for rank in ours.ranks], [rank.peak_in_flight for rank in known.ranks])

# %% [markdown]
# A schedule that cannot run is rejected with the place of the error.

# %%
wrong = flopcast.schedule([["0F0", "0B0"], ["1B0", "1F0"]]).check()
assert not wrong
print(wrong.reason)

# %% [markdown]
# Use it in a job, and compare the step time and the memory of the fullest rank with those of 1F1B.

# %%
job = {"model": "gpt3-13b", "cluster": {"name": "dgx-a100-80g", "nodes": 4},
       "layout": {"tp": 4, "pp": 4, "micro_batch_size": 1, "global_batch_size": 32}}
mine = flopcast.simulate(job, own_schedule=all_forward_then_reversed)
theirs = flopcast.simulate(job, schedule="1f1b")
print(f"{mine.time_s:.3f} s and {mine.peak_memory_gib:.1f} GiB, 1F1B {theirs.time_s:.3f} s and {theirs.peak_memory_gib:.1f} GiB")
assert mine.peak_memory_gib > theirs.peak_memory_gib
