#!/bin/sh
# Install Tinglu into a virtual environment: setup.sh cpu|gpu VENV [--no-dev]
#
# CPU: exact pins from requirements/, without dependency resolution, so that nothing built for CUDA comes in. torch is
# pinned to its CPU build, which the configured package index may carry; PyTorch's own index for CPU builds is the
# second choice (TORCH_INDEX names another).
# GPU: vLLM brings the torch it was built for.
set -eu

device=$1
venv=$2
dev=${3:-}
python=${PYTHON:-python3}
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Tinglu needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1). Name another with PYTHON=..." >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"

pip() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

echo "Setting up Tinglu for DEVICE=$device in $venv; the first time takes a few minutes."
case $device in
cpu)
    torch=$(grep '^torch==' requirements/torch-cpu.txt)
    "$venv/bin/python" -c "import torch, sys; sys.exit('torch==' + torch.__version__ != '$torch')" 2>/dev/null ||
        pip --no-deps "$torch" 2>/dev/null ||
        pip --no-deps --index-url "$torch_index" "$torch"
    pip --no-deps -r requirements/cpu.txt
    [ "$dev" = --no-dev ] || pip --no-deps -r requirements/dev.txt
    pip --no-deps --no-build-isolation --editable .
    ;;
gpu)
    if [ "$dev" = --no-dev ]; then pip --editable '.[gpu]'; else pip --editable '.[gpu,dev]'; fi
    # Only for the weights that it carries; what it depends on is not needed.
    pip --no-deps "$(grep '^Resemblyzer==' requirements/cpu.txt)"
    ;;
*)
    echo "setup.sh: DEVICE is cpu or gpu, not '$device'" >&2
    exit 2
    ;;
esac
