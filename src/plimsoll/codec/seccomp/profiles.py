"""Seccomp profiles: the default one of containerd, and files in the OCI form (`seccompProfile.type: Localhost`).

The default profile allows what it lists and answers EPERM to the rest: no mount, no keyctl, no io_uring, no new
namespaces without CAP_SYS_ADMIN, no AF_VSOCK and AF_ALG sockets. Some calls come with a capability of the container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.errors import PlimsollError

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "&=="]
EPERM, ENOSYS = 1, 38
_CLONE_NEW = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_AF_ALG, _AF_VSOCK = 38, 40


class InvalidProfileError(PlimsollError):
    """A seccomp profile that cannot be used: the field and the reason."""


class Argument(msgspec.Struct, frozen=True):
    """A condition on one argument of the call; `&==` compares `argument & value` with `second`."""

    index: int
    value: int
    operator: Operator = "=="
    second: int = 0


class Rule(msgspec.Struct, frozen=True):
    """These calls get this action where all `arguments` match."""

    names: tuple[str, ...]
    action: int
    arguments: tuple[Argument, ...] = ()


class Profile(msgspec.Struct, frozen=True):
    """`rules` by call; the first rule that matches decides, else `default_action`."""

    default_action: int
    rules: tuple[Rule, ...]


# The values that a filter returns to the kernel (linux/seccomp.h).
KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOG, ALLOW = (
    0x80000000,
    0x00000000,
    0x00030000,
    0x00050000,
    0x7FF00000,
    0x7FFC0000,
    0x7FFF0000,
)

_ALWAYS = """
    _llseek _newselect accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown
    chown32 clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
    clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark
    fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock
    fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex
    futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu
    getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer
    getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32
    getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
    io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listmount listxattr
    listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules lsm_set_self_attr lstat
    lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock
    mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64
    mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall
    munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
    pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64
    process_mrelease pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
    recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat
    renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
    seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto
    set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32
    setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid
    setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl
    shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat
    stat64 statfs statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time
    timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
    timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate
    truncate64 ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork
    vmsplice wait4 waitid waitpid write writev
"""
_WITH_CAPABILITY = {
    "BPF": "bpf",
    "DAC_READ_SEARCH": "open_by_handle_at",
    "PERFMON": "perf_event_open",
    "SYSLOG": "syslog",
    "SYS_ADMIN": """
    bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount
    open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare""",
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module init_module finit_module",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace",
    "SYS_RAWIO": "iopl ioperm",
    "SYS_TIME": "settimeofday stime clock_settime clock_settime64",
    "SYS_TTY_CONFIG": "vhangup",
}
_BY_MACHINE = {
    "x86_64": "arch_prctl modify_ldt",
    "aarch64": "arm_fadvise64_64 arm_sync_file_range sync_file_range2 breakpoint cacheflush set_tls",
}
_PTRACE = "process_vm_readv process_vm_writev ptrace"  # safe since Linux 4.8; the runtime needs 5.12


def default_profile(capabilities: Iterable[str], machine: str) -> Profile:
    """`RuntimeDefault` for a container with these capabilities (`SYS_ADMIN`, without CAP_) on this machine."""
    granted = set(capabilities)
    allowed = [_ALWAYS, _PTRACE, _BY_MACHINE.get(machine, "")]
    allowed += [calls for name, calls in _WITH_CAPABILITY.items() if name in granted]
    rules = [Rule(tuple(dict.fromkeys(" ".join(allowed).split())), ALLOW)]
    for persona in (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF):
        rules.append(Rule(("personality",), ALLOW, (Argument(0, persona),)))
    for family in (Argument(0, _AF_ALG, "<"), Argument(0, _AF_ALG + 1), Argument(0, _AF_VSOCK, ">")):
        rules.append(Rule(("socket",), ALLOW, (family,)))
    if "SYS_ADMIN" not in granted:
        rules.append(Rule(("clone",), ALLOW, (Argument(0, _CLONE_NEW, "&==", 0),)))
        # glibc falls back to clone, whose flags a filter can read.
        rules.append(Rule(("clone3",), ERRNO | ENOSYS))
    return Profile(ERRNO | EPERM, tuple(rules))


_ACTIONS = {
    "SCMP_ACT_KILL": KILL_THREAD,
    "SCMP_ACT_KILL_THREAD": KILL_THREAD,
    "SCMP_ACT_KILL_PROCESS": KILL_PROCESS,
    "SCMP_ACT_TRAP": TRAP,
    "SCMP_ACT_ERRNO": ERRNO,
    "SCMP_ACT_TRACE": TRACE,
    "SCMP_ACT_LOG": LOG,
    "SCMP_ACT_ALLOW": ALLOW,
}
_OPERATORS: dict[str, Operator] = {
    "SCMP_CMP_EQ": "==",
    "SCMP_CMP_NE": "!=",
    "SCMP_CMP_LT": "<",
    "SCMP_CMP_LE": "<=",
    "SCMP_CMP_GT": ">",
    "SCMP_CMP_GE": ">=",
    "SCMP_CMP_MASKED_EQ": "&==",
}


class _Argument(msgspec.Struct, rename="camel"):
    index: int
    value: int
    op: str
    value_two: int = 0


class _Syscall(msgspec.Struct, rename="camel"):
    names: list[str]
    action: str
    errno_ret: int | None = None
    args: list[_Argument] | None = None


class _File(msgspec.Struct, rename="camel"):
    default_action: str
    default_errno_ret: int | None = None
    architectures: list[str] | None = None
    flags: list[str] | None = None
    syscalls: list[_Syscall] | None = None
    listener_path: str = ""


def read_profile(text: bytes) -> Profile:
    """A profile in the form of the OCI runtime specification (config.json, linux.seccomp)."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise InvalidProfileError(f"not a seccomp profile: {error}") from None
    if file.listener_path:
        raise InvalidProfileError("listenerPath: user notification is not supported")
    rules: list[Rule] = []
    for index, entry in enumerate(file.syscalls or []):
        at = f"syscalls[{index}]"
        action = _action(entry.action, entry.errno_ret, f"{at}.action")
        rules += [Rule(tuple(entry.names), action, args) for args in _conditions(entry.args or [], at)]
    return Profile(_action(file.default_action, file.default_errno_ret, "defaultAction"), tuple(rules))


def _action(name: str, errno_ret: int | None, at: str) -> int:
    action = _ACTIONS.get(name)
    if action is None:
        raise InvalidProfileError(f"{at}: {name!r} is not one of {', '.join(_ACTIONS)}")
    if action not in (ERRNO, TRACE):
        return action
    return action | ((EPERM if errno_ret is None else errno_ret) & 0xFFFF)


def _conditions(args: list[_Argument], at: str) -> list[tuple[Argument, ...]]:
    """The arguments of one rule: all must match, unless one index is listed twice; then each is a rule (as runc)."""
    conditions = []
    for number, arg in enumerate(args):
        operator = _OPERATORS.get(arg.op)
        if operator is None:
            raise InvalidProfileError(f"{at}.args[{number}].op: {arg.op!r} is not one of {', '.join(_OPERATORS)}")
        if not 0 <= arg.index <= 5:
            raise InvalidProfileError(f"{at}.args[{number}].index: must be between 0 and 5")
        # OCI: value is the mask and valueTwo what it must equal.
        conditions.append(Argument(arg.index, arg.value, operator, arg.value_two))
    if len({condition.index for condition in conditions}) < len(conditions):
        return [(condition,) for condition in conditions]
    return [tuple(conditions)]


def calls(profile: Profile) -> Mapping[str, tuple[Rule, ...]]:
    """Rules by the name of the call, in the order of the profile."""
    by_name: dict[str, list[Rule]] = {}
    for rule in profile.rules:
        for name in rule.names:
            by_name.setdefault(name, []).append(rule)
    return {name: tuple(rules) for name, rules in by_name.items()}
