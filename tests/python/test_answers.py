"""Commands as functions: same output as the program, byte for byte, and errors with all details."""

import gc
import itertools
import json
import pickle
import random
import threading

import pytest

import flopcast

# Random layouts: possible values of each axis, drawn without checking whether they are compatible.
AXES = {
    "model": ["gpt3-13b", "llama3-8b", "llama2-70b", "mixtral-8x7b", "gpt2-1.5b"],
    "cluster": ["dgx-a100-80g", "dgx-h100", "dgx-b200"],
    "nodes": [1, 2, 4, 16],
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8],
    "vpp": [None, None, None, 2],
    "cp": [1, 1, 2],
    "ep": [1, 1, 2],
    "schedule": [None, "1f1b", "gpipe", "zb-h1", "interleaved", "pipedream-2bw"],
    "micro_batch_size": [1, 2],
    "sequence_parallel": [True, False],
    "recompute": ["none", "selective", "full"],
    "zero": [0, 1, 3],
    "precision": ["bf16", "fp8"],
    "tokens": [None, "300B"],
}


def drawn_job(random_numbers):
    choice = {name: random_numbers.choice(values) for name, values in AXES.items()}
    layout_keys = ("tp", "pp", "vpp", "cp", "ep", "schedule", "micro_batch_size", "sequence_parallel", "recompute", "zero")
    layout = {name: choice[name] for name in layout_keys if choice[name] is not None}
    training = {name: choice[name] for name in ("precision", "tokens") if choice[name] is not None}
    return {
        "model": choice["model"],
        "cluster": {"name": choice["cluster"], "nodes": choice["nodes"]},
        "layout": {**layout, "global_batch_size": 128},
        "training": training,
    }


def test_two_hundred_jobs_are_answered_as_the_program_answers_them(program, tmp_path):
    numbers = random.Random(33)
    answered = refused = 0
    while answered < 200:
        job = drawn_job(numbers)
        try:
            ours = flopcast.simulate(job)
        except flopcast.ConfigError as error:
            # A few of the invalid layouts are compared, too: the program gives the same error.
            if refused < 20:
                file = tmp_path / "refused.json"
                file.write_text(json.dumps(job))
                program("simulate", str(file), code=2)
                assert error.field and error.problem
            refused += 1
            continue
        file = tmp_path / "job.json"
        file.write_text(json.dumps(job))
        assert ours.json + "\n" == program("simulate", str(file), "--format", "json"), job
        answered += 1
    assert refused > 20


def test_keys_files_and_dicts_are_one_question(job, program, tmp_path):
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    expected = program("simulate", str(file), "--recompute", "full", "--gbs", "128", "--format", "json")
    for asked in (
        flopcast.simulate(job, recompute="full", gbs=128),
        flopcast.simulate(str(file), recompute="full", global_batch_size=128),
        flopcast.simulate(file, **{"layout.recompute": "full", "layout.global_batch_size": 128}),
        flopcast.simulate(json.dumps(job), layout={"recompute": "full", "global_batch_size": 128}),
    ):
        assert asked.json + "\n" == expected
    layers = flopcast.simulate(job, model={"layers": 48}, training={"finetune": {"method": "lora", "rank": 8}})
    assert layers.job.model.layers == 48 and layers.job.training.finetune.rank == 8
    assert layers.json == flopcast.simulate(file, model={"name": "gpt3-175b", "layers": 48},
                                            training={"finetune": {"method": "lora", "rank": 8}}).json
    compared = flopcast.compare(file, {"tp": 4, "pp": 16, "vpp": 1, "schedule": "1f1b"}, training={"precision": "fp16"})
    assert compared.a.result.job.training.precision == "fp16" and compared.b.result.job.layout.tp == 4
    assert flopcast.simulate(
        model="gpt3-175b", cluster="8xdgx-a100-80g", tp=8, pp=8, gbs=64
    ).json + "\n" == program(
        "simulate", "--model", "gpt3-175b", "--cluster", "8xdgx-a100-80g", "--tp", "8", "--pp", "8", "--gbs", "64",
        "--format", "json")


@pytest.mark.parametrize(
    "ask, arguments",
    [
        (lambda job: flopcast.simulate(job, jitter="3%"), ["simulate", "-", "--jitter", "3%"]),
        (lambda job: flopcast.memory(job), ["memory", "-"]),
        (lambda job: flopcast.memory(job, view="over-time"), ["memory", "-", "--over-time"]),
        (lambda job: flopcast.memory(job, view="tensors"), ["memory", "-", "--explain"]),
        (lambda job: flopcast.timeline(job), ["timeline", "-"]),
        (lambda job: flopcast.sweep(job, vary={"mbs": [1, 2], "pp": [4, 8, 5]}),
         ["sweep", "-", "--vary", "mbs=1,2", "--vary", "pp=4,8,5"]),
        (lambda job: flopcast.compare(job, {"tp": 4, "pp": 16, "vpp": 1, "schedule": "1f1b"}),
         ["compare", "-", "tp=4,pp=16,vpp=1,schedule=1f1b"]),
        (lambda job: flopcast.plan(model="llama3-8b", cluster="2xdgx-h100", gbs=64, top=3),
         ["plan", "--model", "llama3-8b", "--cluster", "2xdgx-h100", "--gbs", "64", "--top", "3"]),
        (lambda job: flopcast.timeline(pp=4, microbatches=8, schedule="gpipe,1f1b"),
         ["timeline", "--pp", "4", "--microbatches", "8", "--schedule", "gpipe,1f1b"]),
        (lambda job: flopcast.validate(source="zero_bubble"), ["validate", "--source", "zero_bubble"]),
    ],
)
def test_commands_answer_as_the_program_does(ask, arguments, job, program):
    assert ask(job).json + "\n" == program(*arguments, "--format", "json", input=json.dumps(job))


def test_views_of_a_result_are_those_of_the_commands(job, program):
    result = flopcast.simulate(job)
    text = json.dumps(job)
    assert result.memory_of("over-time").json + "\n" == program("memory", "-", "--over-time", "--format", "json", input=text)
    assert result.timeline().json + "\n" == program("timeline", "-", "--format", "json", input=text)
    assert result.tables("csv") == program("simulate", "-", "--format", "csv", input=text)
    assert result.timeline().svg().startswith("<svg")
    assert json.loads(result.chrome_trace())["traceEvents"]
    assert result.report().lstrip().lower().startswith("<!doctype html")
    assert "<table>" in result._repr_html_() and result._repr_svg_().startswith("<svg")
    again = flopcast.simulate(result)
    assert again.json == result.json


def test_a_run_of_months_is_the_programs(program, tmp_path):
    job = {
        "model": "llama3-8b",
        "cluster": {"name": "dgx-h100", "nodes": 16},
        "layout": {"tp": 2, "global_batch_size": 256},
        "training": {"tokens": "1T"},
        "failures": {"preset": "llama3", "spares": 1, "runs": 50},
    }
    file = tmp_path / "months.json"
    file.write_text(json.dumps(job))
    result = flopcast.simulate(job)
    assert result.json + "\n" == program("simulate", str(file), "--format", "json")
    assert result.run.goodput.p50 > 0.9
    assert "goodput" in result._repr_html_()
    assert "The median run" in result.report()


def test_results_have_attributes_and_dicts(job):
    result = flopcast.simulate(job)
    data = result.to_dict()
    assert data == json.loads(result.json)
    assert result.iteration.time_s == data["iteration"]["time_s"] == result.time_s == result["iteration"]["time_s"]
    assert result.memory.fits == result.fits
    assert result.memory.per_pipeline_rank[0].weights_gib > 0
    assert set(result) == set(data) and "iteration" in dir(result)
    with pytest.raises(AttributeError, match="iteration"):
        result.nothing
    data["iteration"]["time_s"] = 0
    assert result.iteration.time_s > 0
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result and copy.time_s == result.time_s and copy.timeline().svg()


def test_errors_name_file_field_value_and_help(job, tmp_path):
    job["layout"]["tp"] = 7
    with pytest.raises(flopcast.ConfigError) as caught:
        flopcast.simulate(job)
    error = caught.value
    assert (error.field, error.value, error.file, error.where) == ("layout.tp", 7, None, "-:/layout/tp")
    assert "7" in error.problem and "1, 2, 4, 8" in error.help
    assert isinstance(error, ValueError) and str(error).startswith("error: layout.tp")
    assert pickle.loads(pickle.dumps(error)).help == error.help
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    with pytest.raises(flopcast.ConfigError) as caught:
        flopcast.simulate(file)
    assert caught.value.file == str(file)
    with pytest.raises(flopcast.ConfigError, match="did you mean"):
        flopcast.simulate(model="gpt3-175", cluster="dgx-h100", gbs=8)
    with pytest.raises(flopcast.ConfigError) as caught:
        flopcast.plan(model="llama3-8b", cluster="dgx-h100", gbs=8, objective="speed")
    assert caught.value.field == "--objective" and caught.value.value == "speed"
    with pytest.raises(flopcast.ConfigError):
        flopcast.simulate(job, no_such_key=3)
    with pytest.raises(flopcast.ConfigError, match="no such file"):
        flopcast.simulate("no-such-job.json")
    with pytest.raises(TypeError):
        flopcast.simulate(job, tp=object())


def test_a_no_is_an_exception_with_its_answer():
    keys = {"model": "gpt3-175b", "cluster": "dgx-a100-80g", "gbs": 8}
    with pytest.raises(flopcast.NegativeAnswer, match="no layout"):
        flopcast.plan(**keys)
    with pytest.raises(flopcast.NegativeAnswer, match="does not fit") as caught:
        flopcast.memory(**keys, tp=8, check=True)
    assert json.loads(caught.value.answer)["memory"]["fits"] is False
    assert not flopcast.simulate(**keys, tp=8).fits


def test_tables_are_columns(job):
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    table = flopcast.sweep(job, vary={"mbs": [1, 2], "pp": [4, 8, 5]}).table()
    assert table.rows == 6
    times = numpy.asarray(table["time_s"])
    assert times.dtype == numpy.float64 and numpy.isnan(times).sum() == 2
    assert times.__array_interface__["data"][0] == memoryview(table["time_s"]).obj.buffer_info()[0]
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["pp" if "pp" in frame else "layout.pp"])[:3] == ["4", "8", "5"]
    ranked = flopcast.plan(model="llama3-8b", cluster="2xdgx-h100", gbs=64, top=3)
    assert list(ranked.table()["time_s"]) == sorted(ranked.table()["time_s"])
    assert ranked.best.result.iteration.time_s == ranked.table()["time_s"][0]
    spans = flopcast.simulate(job).timeline().spans()
    assert spans.rows > 100 and max(spans["end"]) > 0


def test_schedules_from_names_and_lists(program):
    shown = flopcast.schedule("1f1b", pp=4, microbatches=8)
    assert shown.csv == program("schedule", "show", "--schedule", "1f1b", "--pp", "4", "--microbatches", "8",
                                "--format", "csv")
    assert shown.check() and shown.check().ranks == 4
    ours = shown.simulate(forward=1, backward=2)
    assert ours.json + "\n" == program("schedule", "simulate", "-", "--forward", "1", "--backward", "2", "--format", "json",
                                       input=shown.csv)
    assert ours.makespan == 33
    own = flopcast.schedule([["0F0", "0B0"], ["1F0", "1B0"]])
    assert own.simulate(1, 2).makespan == 6 and own._repr_svg_().startswith("<svg")
    wrong = flopcast.schedule([["0B0", "0F0"]]).check()
    assert not wrong and wrong.reason and wrong.cell == "0B0"
    with pytest.raises(flopcast.ConfigError):
        flopcast.schedule([["x"]]).check()
    with pytest.raises(flopcast.ConfigError, match="did you mean"):
        flopcast.schedule("1f1", pp=2, microbatches=2)
    figures = flopcast.compare_schedules(["gpipe", "1f1b"], pp=4, microbatches=8)
    assert figures.to_dict()


def test_what_has_a_name():
    assert "gpt3-175b" in flopcast.catalog.models and "1f1b" in flopcast.catalog.schedules
    assert any("hbm" in str(row) or "bandwidth" in str(row) for row in flopcast.catalog.entry("devices", "a100-80g")["figure"])
    assert "bubble" in flopcast.explain("bubble")
    flows = {"links": [{"name": "a", "bandwidth": 10}], "flows": [
        {"src": 0, "dst": 1, "bytes": 10, "start": 0, "links": [0]}, {"src": 0, "dst": 1, "bytes": 10, "start": 0, "links": [0]}]}
    assert list(flopcast.network_flows(flows).finish) == [2, 2]
    assert flopcast.command("--help").startswith("flopcast")


def test_outputs_are_checked_before_anything_is_written(tmp_path):
    rows = tmp_path / "rows.json"
    rows.write_text("[]")
    with pytest.raises(flopcast.ConfigError, match="is also an input and would be overwritten"):
        flopcast.validate(published=rows, source_errors=rows)
    assert rows.read_text() == "[]"
    same = tmp_path / "same.svg"
    with pytest.raises(flopcast.ConfigError, match="is also the output of --svg"):
        flopcast.validate(source="zero_bubble", svg=same, html=same)
    with pytest.raises(flopcast.FlopcastError, match="nowhere"):
        flopcast.validate(source="zero_bubble", svg=same, html=tmp_path / "nowhere" / "page.html")
    assert not same.exists()


def test_everything_public_is_documented_and_typed(source):
    import ast
    import inspect
    import pydoc

    for name in flopcast.__all__:
        value = getattr(flopcast, name)
        assert name.startswith("__") or inspect.getdoc(value), name
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty, name
            assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values()), name
    assert "Forecasts one training step" in pydoc.render_doc(flopcast)
    # The stubs match the module's contents.
    stubs = ast.parse((source / "python" / "flopcast" / "_core.pyi").read_text())
    told = {node.name for node in stubs.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert told == {name for name in dir(flopcast._core) if not name.startswith("_")}
    for node in stubs.body:
        if isinstance(node, ast.ClassDef):
            members = {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__init__"}
            has = {name for name in vars(getattr(flopcast._core, node.name)) if not name.startswith("_")}
            assert members == has, node.name


def test_threads_ask_at_once(job):
    expected = {tp: flopcast.simulate(job, tp=tp, pp=8).json for tp in (4, 8)}
    wrong = []

    def ask(tp):
        for _ in range(5):
            if flopcast.simulate(job, tp=tp, pp=8).json != expected[tp]:
                wrong.append(tp)
            if not flopcast.memory(job, tp=tp).json:
                wrong.append(tp)

    threads = [threading.Thread(target=ask, args=(tp,)) for tp in (4, 8) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forecast_releases_the_interpreter(job):
    done = threading.Event()
    counted = itertools.count()

    def count():
        while not done.is_set():
            next(counted)

    thread = threading.Thread(target=count)
    thread.start()
    before = next(counted)
    flopcast.plan(model="gpt3-175b", cluster="16xdgx-a100-80g", gbs=512, threads=1)
    during = next(counted) - before
    done.set()
    thread.join()
    assert during > 100


def test_answers_are_given_back(job):
    import resource

    def ask():
        for _ in range(40):
            result = flopcast.simulate(job)
            result.timeline().json
            with pytest.raises(flopcast.ConfigError):
                flopcast.simulate(job, tp=7)
            flopcast.memory(job)
        gc.collect()

    ask()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ask()
    ask()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "KiB"
