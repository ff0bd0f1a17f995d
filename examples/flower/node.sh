#!/bin/sh
# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# node.sh superlink | supernode | simulation: what a node of scenario.yaml does; the third is
# Flower's own simulation of the same, in the same environment.
set -eu
here=$(realpath "$(dirname "$0")")
flower=$(realpath "$FLOWER")
export PATH="$flower/venv/bin:$PATH" PYTHONPATH="$here/seeded" OMP_NUM_THREADS=1
# Nothing of Flower's or its data sets' asks for anything outside.
export FLWR_HOME="$HOME/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export HF_HOME="$HOME/huggingface" HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 RAY_USAGE_STATS_ENABLED=0
cd "$HOME"
# The app asks for the data set uoft-cs/cifar10, and a folder of that name goes before the hub's.
ln -sfn "$flower/uoft-cs" uoft-cs
mkdir -p "$FLWR_HOME"
# The template's .gitignore knows build/, and Flower 1.22 holds it against the app's whole path.
cp -r "$flower/app" /tmp/app

case $(flwr --version) in *" 1.22."*) old=1 ;; *) old= ;; esac
config="num-server-rounds=${ROUNDS:-3} fraction-train=1.0"

superlink() {
  # Since 1.3x one port serves all, and apps' dependencies would be fetched when they start.
  if [ "$old" ]; then
    flower-superlink --insecure "$@" 2>&1
  else
    printf '[superlink.testbed]\naddress = "127.0.0.1:8000"\ninsecure = true\n' >"$FLWR_HOME/config.toml"
    flower-superlink --insecure --host 0.0.0.0 --disable-runtime-dependency-installation "$@" 2>&1
  fi
}

await() { # LINES PATTERN: until the SuperLink has written so many of these
  until [ "$(grep -cE "$2" superlink.log)" -ge "$1" ]; do
    kill -0 "$link" || { cat superlink.log; exit 1; }
    sleep 0.2
  done
}

case $1 in
superlink)
  superlink >superlink.log & link=$!
  # A round is of those that are there when it begins.
  await "$SUPERNODES" 'CreateNode\] Created|ActivateNode\] Activated'
  if [ "$old" ]; then
    flwr run /tmp/app remote-federation --stream --run-config "$config" \
      --federation-config 'address="127.0.0.1:9093" insecure=true'
  else
    flwr run /tmp/app testbed --stream --run-config "$config"
  fi
  kill "$link"
  ;;
supernode)
  partition="partition-id=$((${TESTBED_NODE#uav} - 1)) num-partitions=$SUPERNODES"
  port=$([ "$old" ] && echo 9092 || echo 8000)
  exec flower-supernode --insecure --superlink "$TESTBED_BS:$port" --node-config "$partition"
  ;;
simulation)
  if [ "$old" ]; then
    flwr run /tmp/app local-simulation --run-config "$config" \
      --federation-config "options.num-supernodes=$SUPERNODES"
  else
    superlink --simulation >superlink.log & link=$!
    await 1 'Uvicorn running|startup complete|Starting Flower'
    flwr run /tmp/app testbed --stream --run-config "$config" \
      --federation-config "num-supernodes=$SUPERNODES"
    kill "$link"
  fi
  ;;
esac
[ "$1" = supernode ] || test -f final_model.pt
