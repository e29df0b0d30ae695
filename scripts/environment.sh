# Keeps the virtual environment .venv of this repository. Sourced by the other scripts, not run by itself.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }

# find_python: prints a Python that is new enough and can make virtual environments; $PYTHON comes first.
find_python() {
    local candidate old="" bare=""
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            old="$old $candidate"
        elif ! "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            bare="$candidate"
        else
            command -v "$candidate"
            return
        fi
    done
    if [ -n "$bare" ]; then
        say "$bare cannot make virtual environments: install its venv package (on Debian and Ubuntu: apt install python3-venv)"
    elif [ -n "$old" ]; then
        say "Orsay needs Python 3.11 or newer; found only:$old. Install a newer one, or name it: PYTHON=/path/to/python3.12 $0"
    else
        say "Orsay needs Python 3.11 or newer, and there is none here. Install it, or name it: PYTHON=/path/to/python3.12 $0"
    fi
    return 1
}

# make_environment PYTHON: makes .venv with pip in it; uv does so in a tenth of the time.
make_environment() {
    rm -rf "$venv"
    if command -v uv >/dev/null 2>&1 && uv venv -q --seed --python "$1" "$venv"; then
        return
    fi
    rm -rf "$venv"
    "$1" -m venv "$venv"
}

by_pip() { "$venv/bin/python" -m pip install -qq "$@"; }

# by_uv REQUIREMENT...: pip takes over where there is no uv, or where uv fails: it reads none of pip's settings,
# such as an index of one's own.
by_uv() {
    if command -v uv >/dev/null 2>&1; then
        uv pip install -q --python "$venv/bin/python" "$@" && return
        say "uv could not install it; pip is asked instead"
    fi
    by_pip "$@"
}

# install HOW NAME REQUIREMENT...: makes .venv when it is missing and installs into it, unless that was done
# before with the same project files.
install() {
    local how=$1 name=$2 python stamp want
    shift 2
    stamp="$venv/.orsay-$name"
    if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$(find_python) || return 1
        say "making .venv with $("$python" --version)"
        make_environment "$python" || return 1
    fi
    want=$(printf '%s\n' "$root" "$@" && cat "$root/pyproject.toml" "$root"/envs/*/pyproject.toml) || return 1
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$want" ]; then
        say "installing what '$name' needs into .venv; this is done once"
        (cd "$root" && "$how" "$@") || {
            say "installing failed; the lines above say why. Run $0 again once that is fixed"
            return 1
        }
        printf '%s\n' "$want" >"$stamp"
    fi
}

install_demo() { install by_uv demo -e . -e envs/echo -e envs/guess -e envs/arithmetic; }

# torch comes first, alone, and by pip: where pip knows of a build without CUDA, no other way gets that one.
install_torch() { install by_pip torch 'torch==2.13.0'; }

install_train() {
    install_torch && install by_pip train -e '.[trl,demo]' -e envs/doors 'trl==1.16.0' 'transformers==5.23.0'
}

# The released packages let the tests host classes written for them.
install_tests() {
    install_torch && install by_pip tests -e '.[dev,trl,demo,gymnasium,reasoning-gym,openenv,mcp,docker,hub,postgres,export,eval,otel]' \
        -e envs/echo -e envs/guess -e envs/arithmetic -e envs/doors -e envs/coding -e envs/terminal \
        'openreward==0.1.167' 'ors-sdk==0.1.0' 'trl==1.16.0' 'transformers==5.23.0'
}
