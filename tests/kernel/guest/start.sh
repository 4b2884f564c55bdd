# PID 1 in the finished root: cgroups are mounted and the job is run, by ourselves or by systemd.
# From the kernel's command line: INIT=plain|systemd  CGROUP=1|2
B=/bin/busybox
$B ip link set lo up
if [ "$INIT" = systemd ]; then
  # With this file systemd takes itself for a container and does not read the kernel's command line.
  $B rm -f /.dockerenv
  units=/run/systemd/system
  $B mkdir -p $units/dbus.socket.d $units/dbus.service.d
  $B cp $JOB/job.service $JOB/job.target $units/
  # D-Bus without basic.target, which would bring udev, the journal and a cleaner of /tmp, and take 45 seconds.
  $B printf '[Unit]\nDefaultDependencies=no\n' >$units/dbus.socket.d/early.conf
  $B cp $units/dbus.socket.d/early.conf $units/dbus.service.d/
  # The distribution's generators would take seconds at the start and at every daemon-reload, for units not wanted here.
  $B mkdir -p /run/systemd/system-generators
  for generator in /lib/systemd/system-generators/*; do
    $B ln -s /dev/null /run/systemd/system-generators/${generator##*/}
  done
  [ -s /etc/machine-id ] || $B tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
  exec /lib/systemd/systemd --unit=job.target --show-status=false --log-level=warning --log-target=console \
    --default-standard-output=null --default-standard-error=null
fi
if [ "$CGROUP" = 1 ]; then
  $B mount -t tmpfs -o mode=755 cgroups /sys/fs/cgroup
  for controllers in cpu,cpuacct cpuset memory pids devices freezer blkio hugetlb; do
    $B mkdir /sys/fs/cgroup/$controllers
    # A kernel without one of them refuses; that one is simply not there.
    $B mount -t cgroup -o $controllers cgroup /sys/fs/cgroup/$controllers 2>/dev/null ||
      $B rmdir /sys/fs/cgroup/$controllers
  done
  $B ln -s cpu,cpuacct /sys/fs/cgroup/cpu
  $B ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
else
  $B mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
exec $B sh $JOB/run.sh
