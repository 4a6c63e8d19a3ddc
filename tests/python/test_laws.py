"""User-defined schedules, operator times and network times; and traces for other simulators."""

import json
import math

import pytest

import flopcast

JOB = {"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 2},
       "layout": {"tp": 2, "pp": 4, "global_batch_size": 32, "micro_batch_size": 1}}


def gpipe(ranks, microbatches, chunks):
    assert chunks == 1
    return [[f"{rank}F{number}" for number in range(microbatches)] + [f"{rank}B{number}" for number in range(microbatches)]
            for rank in range(ranks)]


def test_an_own_schedule_is_that_of_its_name():
    own = flopcast.simulate(JOB, own_schedule=gpipe)
    named = flopcast.simulate(JOB, schedule="gpipe")
    assert own.time_s == named.time_s and own.peak_memory_gib == named.peak_memory_gib
    assert flopcast.simulate(own).time_s == own.time_s, "the result's job holds the rows"
    with pytest.raises(flopcast.ConfigError, match="F"):
        flopcast.simulate(JOB, own_schedule=lambda ranks, microbatches, chunks: [["0B0", "0F0"]] * ranks)
    with pytest.raises(flopcast.ConfigError, match="no rows"):
        flopcast.simulate(JOB, own_schedule=lambda *_: [])


def test_laws_that_say_ours_change_nothing():
    ours = flopcast.simulate(JOB)
    same = flopcast.simulate(JOB, operator_time=lambda op, which, seconds: seconds,
                             network_time=lambda kind, size, ranks, nodes, seconds: seconds)
    assert same.iteration == ours.iteration and same.memory == ours.memory
    assert any("user-defined function" in line for line in same.assumptions)


def test_one_law_is_changed():
    ours = flopcast.simulate(JOB)
    seen, passes = set(), set()

    def twice(op, which, seconds):
        seen.add(op)
        passes.add(which)
        return 2 * seconds

    slower = flopcast.simulate(JOB, operator_time=twice)
    assert passes == {"forward", "input_gradient", "weight_gradient"} and len(seen) > 5
    assert 1.5 * ours.breakdown.compute_s < slower.breakdown.compute_s <= 2.01 * ours.breakdown.compute_s
    kinds = {}

    def free(kind, size, ranks, nodes, seconds):
        assert size > 0 and ranks > 1 and nodes >= 1 and seconds > 0
        kinds[kind] = kinds.get(kind, 0) + 1
        return 0.0

    faster = flopcast.simulate(JOB, network_time=free)
    assert {"all_reduce", "send"} <= set(kinds)
    assert faster.breakdown.tp_comm_s == faster.breakdown.pp_comm_s == 0 < ours.breakdown.tp_comm_s
    assert faster.time_s < ours.time_s


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_a_law_that_gives_no_time_is_refused(wrong):
    with pytest.raises(flopcast.ConfigError, match="operator_time"):
        flopcast.simulate(JOB, operator_time=lambda *_: wrong)


def test_what_a_law_raises_arrives():
    def broken(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        flopcast.simulate(JOB, network_time=broken)
    with pytest.raises(TypeError):
        flopcast.simulate(JOB, operator_time=lambda: 1.0)


# # --- Chakra: a minimal protobuf reader with et_def.proto's field numbers ---


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found.append((key >> 3, value))
    assert at == len(data)
    return found


def nodes_of(path):
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at:at + size])
        at += size
    assert dict(fields(messages[0])) == {1: b"0.0.4"}
    nodes = []
    for message in messages[1:]:
        node = {"deps": [], "attributes": {}, "type": 0, "micros": 0}
        for number, value in fields(message):
            if number == 10:
                pairs = fields(value)
                node["attributes"][pairs[0][1].decode()] = pairs[1][1]
            elif number == 5:
                at = 0
                while at < len(value):
                    dependency, at = varint(value, at)
                    node["deps"].append(dependency)
            else:
                node[{1: "id", 2: "name", 3: "type", 7: "micros"}[number]] = value
        nodes.append(node)
    return nodes


def test_chakra_traces_fit_together(tmp_path):
    result = flopcast.simulate(JOB, sp=True, zero=1)
    result.chakra(str(tmp_path))
    traces = [nodes_of(tmp_path / f"step.{rank}.et") for rank in range(16)]
    groups = json.loads((tmp_path / "groups.json").read_text())
    sends, receives = {}, {}
    for rank, nodes in enumerate(traces):
        ids = set()
        for node in nodes:
            assert node["id"] not in ids and all(dependency in ids for dependency in node["deps"])
            ids.add(node["id"])
            told = node["attributes"]
            if node["type"] in (5, 6):
                ends = (told["comm_src"], told["comm_dst"], told["comm_tag"])
                assert ends[0 if node["type"] == 5 else 1] == rank and ends[0] != ends[1]
                (sends if node["type"] == 5 else receives)[ends] = told["comm_size"]
            if node["type"] == 7:
                assert rank in groups[told["pg_name"].decode()] and told["comm_size"] > 0
    assert sends == receives and len(sends) == 2 * 3 * 4 * 16
    # Computation time equals the forecast's, a mean over ranks, to the microsecond, Chakra's unit.
    computed = sum(node["micros"] for nodes in traces for node in nodes if node["type"] == 4) * 1e-6 / len(traces)
    assert computed == pytest.approx(result.breakdown.compute_s + result.breakdown.optimizer_s, rel=2e-4)
    collectives = [[(n["attributes"]["comm_type"], n["attributes"]["comm_size"]) for n in nodes if n["type"] == 7]
                   for nodes in traces]
    for members in groups.values():
        told = {tuple(c for c in collectives[rank]) for rank in members}
        assert len(told) == 1, "all of a group do the same collectives"
    assert "npus_count: [ 8, 2 ]" in (tmp_path / "network.yml").read_text()
    with pytest.raises(flopcast.ConfigError):
        flopcast.simulate(JOB, schedule="pipedream").chakra(str(tmp_path))
    with pytest.raises(flopcast.ConfigError, match="out of range"):
        result.chakra(str(tmp_path), ranks=[16])
