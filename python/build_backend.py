"""The build backend of pyproject.toml: setuptools, after building the module with CMake.

FLOPCAST_PYTHON_MODULE names an existing module (build/dev/python/flopcast/_core….so), which is stripped and packed.
Otherwise the module is built in build/wheel-cmake, optimised, with the libraries that cmake/dependencies.cmake finds.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from setuptools import build_meta as _setuptools
from setuptools.build_meta import (  # noqa: F401  hooks of PEP 517 as they are
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

_SOURCE = pathlib.Path(__file__).resolve().parents[1]
_PACKAGE = _SOURCE / "build" / "wheel" / "flopcast"


def _run(*command):
    try:
        subprocess.run([str(part) for part in command], check=True)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is missing; ./check installs the build's dependencies on Debian") from None


def _built_module():
    given = os.environ.get("FLOPCAST_PYTHON_MODULE")
    if given:
        return pathlib.Path(given)
    folder = _SOURCE / "build" / "wheel-cmake"
    _run("cmake", "-S", _SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DFLOPCAST_WITH_LIBRARY=ON", f"-DPython3_EXECUTABLE={sys.executable}")
    _run("cmake", "--build", folder, "--target", "flopcast_python", "--parallel", str(os.cpu_count() or 1))
    return folder / "python" / "flopcast" / ("_core" + sysconfig.get_config_var("EXT_SUFFIX"))


def _lay_out_package():
    shutil.rmtree(_PACKAGE, ignore_errors=True)
    _PACKAGE.mkdir(parents=True)
    for file in sorted((_SOURCE / "python" / "flopcast").iterdir()):
        if file.suffix in (".py", ".pyi") or file.name == "py.typed":
            shutil.copy(file, _PACKAGE / file.name)
    module = _built_module()
    target = _PACKAGE / module.name
    shutil.copy(module, target)
    if shutil.which("strip"):
        _run("strip", target)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _lay_out_package()
    # The wheel is for this interpreter and machine only.
    from setuptools.dist import Distribution

    Distribution.has_ext_modules = lambda self: True
    return _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    _PACKAGE.mkdir(parents=True, exist_ok=True)
    (_PACKAGE / "__init__.py").touch()
    return _setuptools.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("a source distribution is the repository itself")
