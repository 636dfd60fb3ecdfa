#!/bin/sh
# Checks the compilers that simulators need; with the argument "icarus" also Icarus Verilog, installing it where apt and root are there.
set -eu
need() { echo "tesela: $1" >&2; exit 1; }
for tool in g++ make perl; do
    command -v "$tool" >/dev/null || need "$tool is missing: apt-get install g++ make perl (Debian, Ubuntu)"
done
if [ "${1:-}" = icarus ] && ! command -v iverilog >/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "tesela: installing iverilog"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iverilog; } >/dev/null 2>&1 \
            || need "apt-get could not install iverilog"
    else
        need "Icarus Verilog >= 11 is missing: sudo apt-get install iverilog (Debian, Ubuntu) or brew install icarus-verilog"
    fi
fi
