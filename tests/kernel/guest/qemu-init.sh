#!/bin/busybox sh
# PID 1 in the initial RAM disk of a QEMU guest: the host's file system comes in by virtiofs, read-only, below a tmpfs
# overlay; the job directory comes as a second one and is written through to the host.
# From the kernel's command line: JOB=<that directory>  DISK=<device, or nothing>
B=/bin/busybox
$B mount -t proc proc /proc
for module in $($B cat /modules/order); do $B insmod /modules/$module.ko; done
$B mkdir -p /host /top /root
$B mount -t virtiofs -o ro host /host
$B mount -t tmpfs -o size=512m top /top
$B mkdir -p /top/upper /top/work
ROOT=/root
$B mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work overlay $ROOT || $B poweroff -f
. /fill-root.sh
$B mount -t virtiofs job $ROOT$JOB
if [ -n "$DISK" ]; then $B mkdir -p $ROOT/scratch && $B mount -t ext4 $ROOT$DISK $ROOT/scratch; fi
$B mount --move /proc $ROOT/proc
exec $B switch_root $ROOT $B sh $JOB/start.sh <$ROOT/dev/null >$ROOT/dev/console 2>&1
