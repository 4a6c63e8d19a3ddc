"""Prices of many layouts: equal to individual forecasts, whatever the type of the columns."""

import json
import math

import pytest

import flopcast

JOB = {
    "model": "gpt3-13b",
    "cluster": {"name": "dgx-a100-80g", "nodes": 4},
    "layout": {"global_batch_size": 128},
    "training": {"sequence_length": 2048},
}


def test_a_price_is_what_simulate_forecasts():
    space = flopcast.layouts(JOB)
    prices = flopcast.prices(JOB, {**space, "schedules": space.schedules})
    assert prices.rows == space.rows > 500
    compared = 0
    for index in range(0, space.rows, space.rows // 60):
        keys = space.keys_of(index)
        result = flopcast.simulate(JOB, **keys)
        assert prices["time_s"][index] == result.time_s, keys
        reserved = result.memory.to_dict().get("reserved_gib", result.memory.peak_gib)
        assert prices["memory_gib"][index] >= result.memory.peak_gib * (1 - 1e-12) and reserved > 0, keys
        assert bool(prices["fits"][index]) == result.fits, keys
        compared += 1
    assert compared >= 60


def test_a_job_of_any_kind_costs_what_simulate_forecasts(source):
    """Fabrics, asynchronous schedules, offload, adapters, experts and uneven stages, fitting or not."""
    entries = json.loads((source / "tests" / "golden" / "corpus_jobs.json").read_text())
    misfits = 0
    for number, entry in enumerate(entries):
        place = f"{number:03}-{entry['kind']}"
        result = flopcast.simulate(entry["job"])
        prices = flopcast.prices(entry["job"])
        assert prices.rows == 1, place
        assert prices["time_s"][0] == result.time_s, (place, prices.reasons)
        assert prices["memory_gib"][0] == result.memory.to_dict()["shown_gib"], place
        assert bool(prices["fits"][0]) == result.fits, place
        misfits += not result.fits
    assert len(entries) >= 260 and misfits > 10


def test_bounds_are_below_the_step():
    space = flopcast.layouts(JOB)
    columns = {**space, "schedules": space.schedules}
    exact = flopcast.prices(JOB, columns)
    bounds = flopcast.prices(JOB, columns, simulated=False)
    ratios = []
    for bound, time, schedule in zip(bounds["time_s"], exact["time_s"], space["schedule"]):
        assert bound <= time * (1 + 1e-9)
        if space.schedules[schedule] == "1f1b":
            ratios.append(bound / time)
    ratios.sort()
    assert ratios[len(ratios) // 2] > 0.97


def test_layouts_priced_together_are_those_priced_alone():
    space = flopcast.layouts(JOB)
    table = flopcast.prices(JOB, {**space, "schedules": space.schedules}, simulated=False)
    for index in range(0, space.rows, space.rows // 40):
        keys = space.keys_of(index)
        columns = {key: [value] for key, value in keys.items() if key != "schedule"}
        alone = flopcast.prices(JOB, {**columns, "schedule": [keys["schedule"]]}, simulated=False)
        assert alone["time_s"][0] == table["time_s"][index], keys
        assert alone["memory_gib"][0] == table["memory_gib"][index], keys


def test_columns_of_anything_and_one_for_all():
    numpy = pytest.importorskip("numpy")
    expected = [flopcast.simulate(JOB, tp=tp, pp=2, mbs=2, recompute="full").time_s for tp in (1, 2, 4, 8)]
    for tp in ([1, 2, 4, 8], range(8)[1:9:1], numpy.array([1, 2, 4, 8]), numpy.array([1, 2, 4, 8], dtype=numpy.uint8),
               numpy.array([1, 0, 2, 0, 4, 0, 8, 0])[::2], memoryview(b"\x01\x02\x04\x08")):
        values = list(tp)
        if values != [1, 2, 4, 8]:
            continue
        table = flopcast.prices(JOB, {"tp": tp, "pp": 2, "micro_batch_size": [2], "recompute": "full"})
        assert list(table["time_s"]) == expected
        assert numpy.asarray(table["time_s"]).tolist() == expected
    named = flopcast.prices(JOB, {"pp": 4, "schedule": ["1f1b", "zb-h1", "gpipe"]})
    for time, name in zip(named["time_s"], ("1f1b", "zb-h1", "gpipe")):
        assert time == flopcast.simulate(JOB, pp=4, schedule=name).time_s


def test_what_breaks_a_rule_has_a_reason():
    table = flopcast.prices(JOB, {"tp": [3, 5, 8], "pp": [1, 1, 64]})
    assert all(math.isnan(time) for time in table["time_s"]) and not any(table["fits"])
    assert [bool(table.reasons[reason]) for reason in table["reason"]] == [True] * 3
    valid = flopcast.prices(JOB, {"tp": [1]})
    assert valid.reasons == [""] and valid["time_s"][0] > 0
    # The layout does not fit, but still has both figures.
    tight = flopcast.prices({**JOB, "model": "gpt3-175b"}, {"tp": [1]})
    assert tight["time_s"][0] > 0 and tight["memory_gib"][0] > 80 and not tight["fits"][0]
    for columns in ({"tp": [1, 2], "pp": [1, 2, 4]}, {"tpp": [1]}, {"tp": [0]}, {"zero": [4]}, {"recompute": ["half"]},
                    {"schedule": [5]}, {"tp": [1.5]} if False else {"tp": [-1]}):
        with pytest.raises(flopcast.ConfigError):
            flopcast.prices(JOB, columns)


def test_nodes_are_a_column():
    table = flopcast.prices(JOB, {"nodes": [1, 2, 4], "tp": 8})
    for nodes, time in zip((1, 2, 4), table["time_s"]):
        assert time == flopcast.simulate(JOB, cluster=f"{nodes}xdgx-a100-80g", tp=8).time_s


def test_one_price_at_a_time():
    price = flopcast.Pricer(JOB)
    assert price(tp=4, pp=2).time_s == flopcast.simulate(JOB, tp=4, pp=2).time_s
    assert price(tp=8, schedule="gpipe", pp=4, recompute="full").time_s == flopcast.simulate(
        JOB, tp=8, pp=4, schedule="gpipe", recompute="full").time_s
    assert price(tp=4, pp=2).fits == flopcast.simulate(JOB, tp=4, pp=2).fits
    with pytest.raises(flopcast.ConfigError, match="divide"):
        price(tp=7)
    with pytest.raises(flopcast.ConfigError, match="column"):
        price(tpp=7)


def test_threads_change_nothing():
    space = flopcast.layouts(JOB)
    columns = {**space, "schedules": space.schedules}
    one = flopcast.prices(JOB, columns, threads=1)
    three = flopcast.prices(JOB, columns, threads=3)
    assert list(one["time_s"]) == list(three["time_s"]) and list(one["fits"]) == list(three["fits"])
