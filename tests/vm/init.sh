#!/bin/sh
# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# The virtual machine's first process: the host's root, read-only, with the kernel's modules over it
# and memory over both. The kernel's parameters come as variables.
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
for module in /modules/*; do insmod "$module"; done
options=trans=virtio,version=9p2000.L,msize=512000
{
    mount -t 9p -o "ro,cache=loose,$options" host /host &&
    mount -t 9p -o "ro,cache=loose,$options" over /over &&
    mount -t tmpfs -o size=80%,mode=755 tmpfs /rw &&
    mkdir /rw/up /rw/work &&
    mount -t overlay -o lowerdir=/over:/host,upperdir=/rw/up,workdir=/rw/work overlay /new &&
    mount -t 9p -o "$options" results "/new$RESULTS" &&
    mount -o move /dev /new/dev &&
    exec switch_root /new /bin/bash "$HERE/tests/vm/inside.sh"
}
echo "no root file system"
poweroff -f
