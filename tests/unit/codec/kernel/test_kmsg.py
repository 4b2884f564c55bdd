"""OOM reports as real kernels print them: 6.18 with cgroup v1, 6.1 with v2 and memory.oom.group, the whole machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.kernel.kmsg import KernelOomKill, KernelRecord, KillCandidate, OomReports, kernel_record

V1 = """\
python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 1 UID: 0 PID: 3816 Comm: python Not tainted 6.18.44 #1 PREEMPT(none)
Call Trace:
 <TASK>
 dump_header+0x43/0x1c0
memory: usage 16384kB, limit 16384kB, failcnt 20
memory+swap: usage 16384kB, limit 9007199254740988kB, failcnt 0
Memory cgroup stats for /plimsoll-test/pod1:
cache 0
rss 16666624
total_rss 16666624
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[   3816]     0  3816    19566     5395     4064     1331         0    90112        0             0 python
[     17]     0    17      600      100       64       36         0    40960        0          -997 my sh
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=pod1,mems_allowed=0,oom_memcg=/plimsoll-test/pod1,task_memcg=/plimsoll-test/pod1/c,task=python,pid=3816,uid=0
Memory cgroup out of memory: Killed process 3816 (python) total-vm:78264kB, anon-rss:16256kB, file-rss:5324kB, shmem-rss:0kB, UID:0 pgtables:88kB oom_score_adj:0
"""
GROUP = """\
hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999
memory: usage 65536kB, limit 65536kB, failcnt 31
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/burstable/podx/c1,task_memcg=/kubepods/burstable/podx/c1,task=hog,pid=41,uid=0
Memory cgroup out of memory: Killed process 41 (hog) total-vm:70000kB, anon-rss:60000kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:88kB oom_score_adj:999
Tasks in /kubepods/burstable/podx/c1 are going to be killed due to memory.oom.group set
Memory cgroup out of memory: Killed process 40 (sh) total-vm:2000kB, anon-rss:80kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:44kB oom_score_adj:999
"""
WHOLE = """\
stress invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=stress,pid=99,uid=1000
Out of memory: Killed process 99 (stress) total-vm:1000000kB, anon-rss:900000kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1800kB oom_score_adj:0
"""


def reports(text: str) -> list[KernelOomKill]:
    reader = OomReports()
    taken = [reader.take(KernelRecord(number, 5_000_000, line)) for number, line in enumerate(text.splitlines())]
    return [each for each in taken if each is not None]


def test_a_record() -> None:
    found = kernel_record(b"6,1918,15416868235,-;Memory cgroup stats for /a:\n SUBSYSTEM=x\n")
    assert found == KernelRecord(1918, 15416868235, "Memory cgroup stats for /a:")
    assert kernel_record(b"nonsense") is None
    assert kernel_record(b"a,b,c;text") is None


def test_a_limit_of_a_cgroup() -> None:
    (found,) = reports(V1)
    assert (found.pid, found.name, found.asked_by, found.limit_cgroup, found.victim_cgroup) == (
        3816,
        "python",
        "python",
        "/plimsoll-test/pod1",
        "/plimsoll-test/pod1/c",
    )
    assert (found.usage_bytes, found.limit_bytes, found.anon_bytes) == (16 << 20, 16 << 20, 16256 << 10)
    assert found.stat == {"cache": 0, "rss": 16666624, "total_rss": 16666624}
    assert found.candidates == (KillCandidate(3816, "python", 5395, 0), KillCandidate(17, "my sh", 100, -997))
    assert not found.group


def test_a_whole_group() -> None:
    first, second = reports(GROUP)
    assert (first.pid, first.group, second.pid, second.group) == (41, False, 40, True)
    assert first.limit_cgroup == second.limit_cgroup == "/kubepods/burstable/podx/c1"
    assert second.oom_score_adj == 999


def test_the_whole_machine() -> None:
    (found,) = reports(WHOLE)
    assert found.limit_cgroup is None
    assert (found.name, found.victim_cgroup) == ("stress", "/user.slice")


def test_reports_do_not_mix() -> None:
    first, second = reports(V1 + WHOLE)
    assert first.stat and not second.stat
    assert not second.candidates


def test_the_statistics_of_v2_are_in_one_record() -> None:
    text = GROUP.replace(
        "oom-kill:",
        "Memory cgroup stats for /kubepods/burstable/podx/c1:\nanon 61440000\\x0afile 4096\\x0akern\noom-kill:",
    )
    assert reports(text)[0].stat == {"anon": 61440000, "file": 4096}


def test_a_victim_without_a_report_is_not_combined_with_an_earlier_one() -> None:
    """The kernel leaves reports out when there are many; what it names then may have been anywhere."""
    alone = V1.splitlines()[-1].replace("3816", "3900")
    assert [each.pid for each in reports(V1 + alone)] == [3816]


# --- names that the killed process has chosen ---

CONTAINER = "/kubepods/burstable/podx/c1"
FORGERIES = [
    b"a,global_oom", b"a,oom_memcg=/", b"a,pid=1,uid=0", b"x,task_memcg=/y", b"a) total-vm:0k", b"1 -997 other",
    b"gfp_mask=", b"a invoked oom-k", b" ", b"\n6,1,1,-;oom-", b"\\x2c", "größe".encode(), b"Killed process ", b"",
    b"): Killed proc", b"0 0 0 0 0 1 sh", b",task=,pid=3,ui",
]  # fmt: skip


def printed(text: bytes) -> str:
    """As the device shows it."""
    return "".join(chr(each) if 32 <= each < 127 and each != 0x5C else f"\\x{each:02x}" for each in text)


def report(comm: bytes, limit: str = CONTAINER, victim: str = CONTAINER) -> list[KernelOomKill]:
    name = printed(comm)
    records = [
        f"{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "memory: usage 65536kB, limit 65536kB, failcnt 31",
        "Tasks state (memory values in pages):",
        "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
        f"[     77]     0    77    19566     5395     4064     1331         0    90112        0           500 {name}",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg={limit},"
        f"task_memcg={victim},task={name},pid=77,uid=0",
        f"Memory cgroup out of memory: Killed process 77 ({name}) total-vm:78264kB, anon-rss:16256kB, file-rss:5324kB, "
        "shmem-rss:0kB, UID:0 pgtables:88kB oom_score_adj:500",
    ]
    reader = OomReports()
    data = [f"6,{number},5000000,-;{text}\n".encode() for number, text in enumerate(records)]
    taken = [reader.take(record) for each in data if (record := kernel_record(each)) is not None]
    return [each for each in taken if each is not None]


@given(st.binary(max_size=15).map(lambda name: name.replace(b"\0", b"")) | st.sampled_from(FORGERIES))
def test_no_process_name_changes_the_report(comm: bytes) -> None:
    (found,) = report(comm)
    name = comm.decode("utf-8", "replace")
    assert (found.limit_cgroup, found.victim_cgroup, found.pid, found.oom_score_adj, found.anon_bytes) == (
        CONTAINER,
        CONTAINER,
        77,
        500,
        16256 << 10,
    )
    assert (found.name, found.asked_by) == (name, name)
    assert found.candidates == (KillCandidate(77, name, 5395, 500),)


PARTS = st.lists(
    st.sampled_from([",task_memcg=", ",oom_memcg=", ",global_oom", ",task=", "kubepods", "pody", "/", "c2", "x"]),
    max_size=8,
).map("".join)


@given(PARTS, PARTS)
def test_no_name_of_a_cgroup_leads_out_of_it(below: str, further: str) -> None:
    """Who may make cgroups may call them anything without a slash, and put them into one another."""
    limit = f"{CONTAINER}/{below}".rstrip("/")
    found = report(b"hog", limit, f"{limit}/{further}".rstrip("/"))
    for each in found:
        assert each.limit_cgroup is not None and f"{each.limit_cgroup}/".startswith(f"{CONTAINER}")
        assert not each.victim_cgroup or each.victim_cgroup.startswith(CONTAINER)


def test_a_cgroup_that_spells_the_machine_is_a_cgroup() -> None:
    (found,) = report(b"hog", f"{CONTAINER}/a,global_oom", f"{CONTAINER}/a,global_oom")
    assert found.limit_cgroup == f"{CONTAINER}/a,global_oom"


def test_records_written_by_a_process_are_ignored() -> None:
    assert kernel_record(b"12,5,5,-;Out of memory: Killed process 1 (init) total-vm:1kB") is None
