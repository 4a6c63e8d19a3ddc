# Shell functions shared by ./flopcast and ./check: the Debian packages that each task needs. Sourced, not run.
# shellcheck shell=bash disable=SC2034  # the lists are used by the scripts that source this file

build_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libboost-dev libeigen3-dev libyaml-cpp-dev libtomlplusplus-dev zlib1g-dev libsqlite3-dev)
# Packages of the Python module; its tests pass columns to numpy, pandas and scipy.
python_packages=(pybind11-dev python3-dev python3-pytest python3-numpy python3-pandas python3-scipy python3-pip python3-venv python3-setuptools python3-wheel)
test_packages=("${build_packages[@]}" openmpi-bin libopenmpi-dev libgtest-dev librapidcheck-dev libbenchmark-dev librsvg2-bin "${python_packages[@]}")
# locales: German and Turkish ones are tested, since answers must not depend on the locale.
review_packages=(git clang-format emscripten locales)
# Since version 22, clang-tidy skips system headers, which are most of what it would read.
tidy_packages=(clang-tidy-22)
sanitizer_packages=(clang-22 libclang-rt-22-dev)
browser_packages=(chromium)
# SimGrid, with which bench_flows is compared; the benchmark builds without it as well.
bench_packages=(libsimgrid-dev)
# Doxygen writes the reference of the C++ library from the comments of the public header.
reference_packages=(doxygen)
package_packages=(mmdebstrap dpkg-dev file)

# Prints the given packages that are not installed, one per line.
missing_packages() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) || status=""
    [[ $status == installed ]] || printf '%s\n' "$package"
  done
}

# Explains how to install the given packages by hand, and exits.
refuse_to_install() {
  local why=$1
  shift
  {
    printf 'error: %s\n' "$why"
    printf '  help: install these packages, then run the command again:\n'
    printf '        apt-get install --no-install-recommends %s\n' "$*"
    printf '  help: set FLOPCAST_SKIP_PACKAGES=1 to skip this check if the libraries were installed in another way\n'
  } >&2
  exit 4
}

# Prints the prefix that runs a command as root, one word per line; fails if there is none. Asks for a password only on a
# terminal.
root_command() {
  if ((EUID == 0)); then
    printf 'env\n'
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [[ -t 0 && -t 2 ]] && sudo -v >&2; }; }; then
    printf 'sudo\nenv\n'
  else
    return 1
  fi
}

# ensure_packages LOG PACKAGE...: installs missing packages. Output goes to LOG, one progress line to stderr.
ensure_packages() {
  local log=$1
  shift
  [[ -z ${FLOPCAST_SKIP_PACKAGES:-} ]] || return 0
  command -v dpkg-query >/dev/null || refuse_to_install "packages cannot be installed because this is not a Debian system" "$@"

  local -a missing as_root apt
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  mapfile -t as_root < <(root_command)
  ((${#as_root[@]} > 0)) || refuse_to_install "packages are missing; installing them needs root or sudo" "${missing[@]}"

  printf 'flopcast: installing %s (log: %s)\n' "${missing[*]}" "$log" >&2
  apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  # A failed update is not fatal: the existing lists may suffice, and otherwise the installation reports an error.
  "${apt[@]}" update </dev/null >>"$log" 2>&1 || true
  if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    refuse_to_install "apt-get could not install every package (full log: $log)" "${missing[@]}"
  fi
}

# try_packages LOG PACKAGE...: succeeds if the packages are installed or can be installed; prints no error otherwise.
try_packages() {
  (ensure_packages "$@") 2>/dev/null
}
