#!/bin/sh
# Makes the virtual environment: sim/setup.sh PYTHON VENV. Says in one line what is missing.
set -eu
python=$1
venv=$2
need() { echo "tesela: $1" >&2; exit 1; }
[ -n "$python" ] || need "Python 3.11 or newer is missing: install python3 (Debian: apt-get install python3 python3-venv) or set PYTHON=..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || need "Python 3.11 or newer is needed, $python is $("$python" -V 2>&1); set PYTHON=..."
"$python" -c 'import venv, ensurepip' 2>/dev/null || need "Python's venv module is missing: apt-get install python3-venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "tesela: installing Python packages into $venv (once; a few minutes)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]' || need "pip could not install the packages named in pyproject.toml (is a package index reachable?)"
