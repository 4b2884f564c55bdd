# Sourced by both init scripts with $ROOT (the overlay) and $B (busybox): devices and the rest that every program
# expects. /proc is moved in last, when nothing below the old root needs it any more.
$B mount -t sysfs sys $ROOT/sys
$B mount -t devtmpfs dev $ROOT/dev
$B mkdir -p $ROOT/dev/pts $ROOT/dev/shm
$B ln -sf /proc/self/fd $ROOT/dev/fd
for pair in 0,stdin 1,stdout 2,stderr; do $B ln -sf /proc/self/fd/${pair%,*} $ROOT/dev/${pair#*,}; done
$B mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts $ROOT/dev/pts
$B mount -t tmpfs shm $ROOT/dev/shm
$B mount -t tmpfs -o mode=755 run $ROOT/run
$B mkdir -p $ROOT/run/lock $ROOT$JOB
