#!/bin/busybox sh
# PID 1 of a user-mode Linux: the host's file system is the root, read-only (hostfs). A tmpfs overlay goes on top of
# it, so that whatever is written vanishes at the end; only the job directory is written through to the host.
# From the kernel's command line: JOB=<that directory>  DISK=<device, or nothing>
B=/bin/busybox
MODULES=$MODULES/$($B uname -r)
$B mount -t proc proc /proc
$B insmod $MODULES/kernel/fs/overlayfs/overlay.ko
$B mount -t tmpfs -o size=256m top /mnt
$B mkdir -p /mnt/upper /mnt/work /mnt/root
ROOT=/mnt/root
$B mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay $ROOT || $B poweroff -f
$B mkdir -p $ROOT/usr/lib/modules
$B ln -sfn $MODULES $ROOT/usr/lib/modules/
. $JOB/fill-root.sh
$B mount -t hostfs -o $JOB none $ROOT$JOB
if [ -n "$DISK" ]; then $B mkdir -p $ROOT/scratch && $B mount -t ext4 /$ROOT$DISK $ROOT/scratch; fi
$B mount --move /proc $ROOT/proc
cd $ROOT
$B mkdir -p run/old-root
$B pivot_root . run/old-root
exec $B chroot . $B sh $JOB/start.sh <dev/console >dev/console 2>&1
