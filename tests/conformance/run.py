"""Compare Plimsoll's rules with answers that real Kubernetes gave: `./dev conformance [--profile RELEASE] [DIR]`.

One vector file is one topic; each line is `{"input": …, "expected": …}`. This harness only translates: it turns an input
into the rules' objects (`codec.lean`, `codec.defaults`), calls public functions of `plimsoll.rules` and lays their
answers out as the vectors do. It decides nothing. The modules of `plimsoll.rules` that answer:

    a  resources.defaulting, resources.qos, admission.validation
    b  resources.effective
    c  resources.oom_score, model.objects
    d  resources.values, resources.cpu
    e  resources.values, resources.cpu, resources.oom_score
    f  model.cgroup_names
    g  quantity
    h  config.thresholds, node.allocatable
    i  config.thresholds, eviction.assessment, eviction.ranking
    j  admission.resize, resize.allocation, resize.verdict
    k  resources.cpu

The profile is the release that the directory is named after, else 1.36. Without a directory, the vectors of the project
are compared, of one release or of all. A difference counts apart if it is what the real code answers by a quirk that Plimsoll does not
copy (`quirks`). For each topic a line `topic agreed/total`; then the first disagreements. Exit 1 on any.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from plimsoll.errors import PlimsollError
from plimsoll.rules.profile import RELEASES, Profile, profile_named
from tests.conformance import eviction_topics, node_topics, quirks, resize_topics, topics

VECTORS = Path(__file__).parent / "vectors"
Translate = Callable[[dict[str, Any], Profile], dict[str, Any]]

TOPICS: dict[str, Translate] = {
    "a_qos": topics.qos,
    "b_aggregate": topics.aggregate,
    "c_oom": topics.oom,
    "d_pod_cgroup": topics.pod_cgroup,
    "e_container": topics.container,
    "f_cgroup_names": topics.cgroup_names,
    "g_quantity": topics.quantity,
    "h_node": node_topics.node,
    "i_eviction": eviction_topics.eviction,
    "j_resize_api": resize_topics.resize_api,
    "j_resize_kubelet": resize_topics.resize_kubelet,
    "k_convert": topics.convert,
}
SHOWN = 5


def cases(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            yield case["input"], case["expected"]


def differences(translate: Translate, given: dict[str, Any], expected: dict[str, Any], profile: Profile) -> list[str]:
    try:
        got = translate(given, profile)
    except (PlimsollError, ArithmeticError) as error:
        return [f"refused: {error}"]
    return [
        f"{key}: got {got.get(key)!r}, expected {expected.get(key)!r}"
        for key in sorted(got.keys() | expected.keys())
        if topics.comparable(got.get(key)) != topics.comparable(expected.get(key))
    ]


def run(directory: Path, profile: Profile) -> int:
    files = sorted(directory.glob("*.jsonl.gz"))
    known = [path for path in files if path.name.removesuffix(".jsonl.gz") in TOPICS]
    for path in files:
        if path not in known:
            print(f"{path.name.removesuffix('.jsonl.gz')} skipped: no such topic")
    failed = 0
    for path in known:
        topic = path.name.removesuffix(".jsonl.gz")
        agreed = total = 0
        apart: Counter[str] = Counter()
        first: list[str] = []
        for number, (given, expected) in enumerate(cases(path), 1):
            found = differences(TOPICS[topic], given, expected, profile)
            clause = quirks.quirk(topic, TOPICS[topic], given, expected, profile) if found else ""
            if clause:
                apart[clause] += 1
                continue
            total += 1
            agreed += not found
            if found and len(first) < SHOWN:
                first.append(f"  line {number}: " + "; ".join(found))
        shown = ", ".join(f"{count} by {clause}" for clause, count in sorted(apart.items()))
        print(f"{topic} {agreed}/{total}" + (f" (apart: {shown})" if shown else ""))
        print("\n".join(first), end="\n" if first else "")
        failed += total - agreed
    if not known:
        print(f"no vectors in {directory}", file=sys.stderr)
        return 2
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev conformance")
    parser.add_argument("directory", nargs="?", type=Path, help="default: the vectors of the project")
    parser.add_argument("--profile", choices=RELEASES, help="default: the release that the directory is named after")
    given = parser.parse_args(arguments)
    if given.directory is None:
        releases = RELEASES if given.profile is None else (given.profile,)
        return max(run(VECTORS / release, profile_named(release)) for release in releases)
    named = given.directory.resolve().name
    return run(given.directory, profile_named(given.profile or (named if named in RELEASES else "1.36")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
