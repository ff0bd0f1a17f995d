#!/bin/bash
# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# What a distribution's boot would have set up, as far as the testbed needs it; then `inside.py`.
echo "testbed: booted Linux $(uname -r)"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm /home/user
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
# Programs are found open by whom the host's root let in; Docker wants no overlay below its own.
for folder in /dev/shm /run /var/lib/docker; do
    mkdir -p "$folder"
    mount -t tmpfs -o mode=1777 tmpfs "$folder"
done
chmod 755 /run
ip link set lo up
hostname testbed
ulimit -Hn 524288
# An ordinary user reaches checkout and caches, whatever the host's folders let her do.
for place in "$HERE" "$PYTHON" "$HOME"; do
    while [ "$place" != / ]; do
        chmod a+rx "$place"
        place=$(dirname "$place")
    done
done
cd "$HERE" || exit
"$PYTHON" tests/vm/inside.py "$RESULTS"
sync
echo o >/proc/sysrq-trigger
sleep 60
