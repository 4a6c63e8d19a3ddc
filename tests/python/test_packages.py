"""Installed packages: the wheel in a fresh environment without network, the C++ library used from outside the tree."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import flopcast


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory, build, source):
    """A virtual environment with only the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    module = next((build / "python" / "flopcast").glob("_core*.so"))
    # A copy, because the build backend writes below the source tree.
    tree = folder / "tree"
    shutil.copytree(source / "python", tree / "python")
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(source / name, tree / name)
    variables = {**os.environ, "FLOPCAST_PYTHON_MODULE": str(module), "PIP_NO_INDEX": "1", "PYTHONPATH": ""}
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, tree,
        env=variables, cwd=folder)
    wheels = list(folder.glob("flopcast-*.whl"))
    assert len(wheels) == 1 and "py3-none-any" not in wheels[0].name
    run(sys.executable, "-m", "venv", folder / "venv")
    run(folder / "venv" / "bin" / "pip", "install", "--no-deps", wheels[0], env=variables, cwd=folder)
    return folder / "venv" / "bin" / "python"


def test_the_wheel_forecasts_in_a_fresh_environment(environment, tmp_path):
    code = ("import flopcast, sys; assert 'venv' in flopcast.__file__, flopcast.__file__; "
            "print(flopcast.simulate(model='gpt3-175b', cluster='8xdgx-a100-80g', tp=8, pp=8, gbs=64).json)")
    printed = run(environment, "-c", code, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert printed == flopcast.simulate(model="gpt3-175b", cluster="8xdgx-a100-80g", tp=8, pp=8, gbs=64).json + "\n"
    # The module has stubs, and needs neither numpy nor a configured locale.
    run(environment, "-c", "import flopcast, pathlib; f = pathlib.Path(flopcast.__file__).parent; "
        "assert (f / 'py.typed').exists() and (f / '_core.pyi').exists()", cwd=tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\n")
    code = f"import flopcast; print(flopcast.convert({str(recipe)!r}).json)"
    assert json.loads(run(environment, "-c", code, cwd=tmp_path))


def test_the_module_needs_the_c_library_alone(build):
    module = next((build / "python" / "flopcast").glob("_core*.so"))
    needed = re.findall(r"NEEDED\).*\[(.*)\]", run("readelf", "-d", module))
    assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", module).splitlines()]
    assert exported == ["PyInit__core"]


def test_a_project_outside_the_tree_uses_the_library(build, source, tmp_path, program):
    for component in ("library",):
        run("cmake", "--install", build, "--component", component, "--prefix", tmp_path / "installed")
    headers = sorted(str(path.relative_to(tmp_path / "installed")) for path in (tmp_path / "installed").rglob("*.hpp"))
    assert headers == ["include/flopcast/base/text/error.hpp", "include/flopcast/flopcast.hpp"]
    shutil.copytree(source / "examples" / "cpp-library", tmp_path / "example")
    for standard in ("17", "20"):
        folder = tmp_path / f"build-{standard}"
        run("cmake", "-S", tmp_path / "example", "-B", folder, f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}",
            f"-DCMAKE_CXX_STANDARD={standard}")
        run("cmake", "--build", folder)
    job = source / "examples" / "gpt3-175b-64-gpus" / "job.json"
    done = subprocess.run([str(folder / "example"), str(job)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == program("simulate", str(job), "--format", "json")
    assert "layout.tp: valid" in done.stderr and "free network" in done.stderr
    # The library exports only the declarations of the header.
    library = next((tmp_path / "installed").rglob("libflopcast.so"))
    names = run("nm", "-DC", "--defined-only", library)
    assert "nlohmann" not in names and "flopcast::forecast(" not in names
    stranger = tmp_path / "stranger"
    (stranger).mkdir()
    (stranger / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(stranger CXX)\nfind_package(flopcast 9 REQUIRED)\n")
    wrong = subprocess.run(["cmake", "-S", str(stranger), "-B", str(stranger / "build"),
                            f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}"], capture_output=True, text=True)
    assert wrong.returncode != 0
