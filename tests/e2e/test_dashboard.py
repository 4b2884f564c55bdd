"""The dashboard in a real browser against a running cluster: what it shows is what the kernel has."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.e2e.dashboard_browser import MIB, Cluster, Tab, missing
from tests.e2e.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"dashboard: {missing()}"),
    pytest.mark.xdist_group("dashboard"),
]
Opened = Callable[..., Tab]
HOLDS = (
    'exec python3 -c \'import time; kept = bytearray(20 << 20); shared = open("/dev/shm/x", "wb"); '
    'shared.write(b"x" * (6 << 20)); shared.flush(); time.sleep(10000)\''
)
HOLDS_LITTLE = "exec python3 -c 'import time; kept = bytearray({} << 20); time.sleep(10000)'"
WORKS = HOLDS_LITTLE.format(14).replace("time.sleep(10000)", "[sum(range(9000)) for _ in iter(int, 1)]")
VIEWS = ("node", "hull", "pod", "next", "explain", "fleet", "replay")


@pytest.fixture(scope="module")
def cluster(dashboard: Any) -> Iterator[Cluster]:
    """With a few pods of each class, which also make the pictures of the documentation (PLIMSOLL_SCREENSHOTS=DIR)."""
    found: Cluster = dashboard[0]
    found.run(
        "steady", HOLDS, {"requests": {"cpu": "50m", "memory": "40Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    )
    web = {"name": "app", "resources": {"requests": {"memory": "24Mi"}, "limits": {"memory": "40Mi"}}}
    beside = {"name": "proxy", "image": "busybox", "command": ["sh", "-c", HOLDS_LITTLE.format(4)]}
    beside["resources"] = {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"cpu": "50m", "memory": "24Mi"}}
    found.run("shop-web", HOLDS_LITTLE.format(20), container=web, beside=[beside])
    same = {"cpu": "60m", "memory": "32Mi"}
    found.run("payments", WORKS, {"requests": same, "limits": same})
    found.run("crawler", HOLDS_LITTLE.format(6))
    yield found
    for name in ("steady", "shop-web", "payments", "crawler"):
        found.delete(name)


@pytest.fixture
def opened(dashboard: Any, cluster: Cluster) -> Iterator[Opened]:
    tabs: list[Tab] = []

    def tab(view: str = "", **options: Any) -> Tab:
        tabs.append(Tab(dashboard[1], cluster, **options))
        tabs[-1].open(view)
        return tabs[-1]

    yield tab
    for each in tabs:
        each.close()


def drawn(tab: Tab, pod: str) -> dict[str, Any]:
    """The vessel of the container `app` as it is drawn: its path, fills and own lines in bytes."""
    return dict(
        tab.page.evaluate(
            """pod => {
              const tank = document.querySelector(`[data-pod="${pod}"] [data-level="container"]`);
              if (!tank) return {};
              const amounts = (query, key) => Object.fromEntries([...tank.querySelectorAll(query)].map(
                (each) => [each.dataset[key], Number(each.dataset.bytes)]));
              return { path: tank.dataset.path, fills: amounts('[data-fill]', 'fill'),
                lines: amounts('[data-line][data-of=""]', 'line') };
            }""",
            pod,
        )
    )


def in_kernel(cluster: Cluster, path: str) -> dict[str, int]:
    names = {"memory.stat", *(("memory.max",) if cluster.driver.version == 2 else ("memory.limit_in_bytes",))}
    texts = cluster.files(path, *names)
    stat = {key: int(value) for key, value in (line.split() for line in texts["memory.stat"].splitlines())}
    prefix = "" if cluster.driver.version == 2 else "total_"
    limit = texts.get("memory.max") or texts["memory.limit_in_bytes"]
    return {
        "anon": stat["anon" if cluster.driver.version == 2 else "total_rss"],
        "shmem": stat[f"{prefix}shmem"],
        "max": int(limit),
    }


def test_fills_and_lines_are_those_of_the_kernel(opened: Opened, cluster: Cluster) -> None:
    tab = opened("hull")
    tab.page.wait_for_selector('[data-pod="steady"] [data-level="container"]')

    def agree() -> bool:
        path = drawn(tab, "steady").get("path", "")
        before = in_kernel(cluster, path)
        shown = drawn(tab, "steady")
        found = {
            "anon": shown["fills"].get("anon"),
            "shmem": shown["fills"].get("shmem"),
            "max": shown["lines"].get("max"),
        }
        return before == in_kernel(cluster, path) and found == before and before["anon"] > 20 * MIB

    until(agree, lambda: str((drawn(tab, "steady"), in_kernel(cluster, drawn(tab, "steady")["path"]))))
    assert drawn(tab, "steady")["lines"]["max"] == 64 * MIB
    # The table has the same figures as the picture.
    tab.page.get_by_role("button", name="Show as table").click()
    row = tab.page.locator("tr", has=tab.page.get_by_text("default/steady/app", exact=True))
    assert row.locator('[data-column="max"]').inner_text() == "64 MiB"
    assert row.locator('[data-column="shmem"]').inner_text() == "6 MiB"


def test_a_resize_by_the_panel_changes_the_kernel_and_the_picture_follows(opened: Opened, cluster: Cluster) -> None:
    resources = {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "50m", "memory": "32Mi"}}
    cluster.run("resized", "exec sleep 10000", resources)
    tab = opened("hull")
    tab.page.wait_for_selector('[data-pod="resized"] [data-level="container"]')
    path = drawn(tab, "resized")["path"]
    assert in_kernel(cluster, path)["max"] == 32 * MIB
    tab.go("pod/default/resized")
    slider = tab.page.get_by_label("memory limit", exact=True)

    def drag(value: int) -> None:
        slider.evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
            value,
        )

    drag(8)  # below the request
    tab.page.wait_for_selector('[data-outcome="refused"]')
    assert tab.page.get_by_role("button", name="Commit resize").is_disabled()
    drag(48)
    tab.page.wait_for_selector('[data-outcome="accepted"]')
    assert in_kernel(cluster, path)["max"] == 32 * MIB, "nothing is sent before the commit"
    tab.picture("resize-panel")
    tab.page.get_by_role("button", name="Commit resize").click()
    until(lambda: in_kernel(cluster, path)["max"] == 48 * MIB)
    tab.go("hull")
    until(lambda: drawn(tab, "resized").get("lines", {}).get("max") == 48 * MIB)
    tab.go("pod/default/resized")
    tab.page.wait_for_selector('[data-mark-kind="resize"]')
    assert tab.is_same_document()
    cluster.delete("resized")


def test_an_oom_kill_and_an_eviction_appear_without_a_reload(opened: Opened, cluster: Cluster) -> None:
    tab = opened("node")
    limits = {"requests": {"memory": "8Mi"}, "limits": {"memory": "24Mi"}}
    cluster.run("hungry", "exec python3 -c 'bytearray(64 << 20)'", limits, restartPolicy="Never")
    tab.page.wait_for_selector('[data-mark-kind="oom"]')
    assert "hungry" in tab.page.locator('[data-mark-kind="oom"]').first.inner_text()
    tab.page.wait_for_function("() => document.getElementById('spoken').textContent.includes('OOM kill')")
    cluster.run("greedy", "exec python3 -c 'import time; kept = bytearray(210 << 20); time.sleep(10000)'")
    tab.page.wait_for_selector('[data-mark-kind="eviction"]')
    until(lambda: cluster.pod("greedy")["status"].get("reason") == "Evicted")
    tab.go("pod/default/greedy")
    tab.page.get_by_text("Failed: Evicted").wait_for()
    assert tab.is_same_document()
    for name in ("hungry", "greedy"):
        cluster.delete(name)


def test_a_lost_connection_goes_on_without_a_gap(opened: Opened, cluster: Cluster) -> None:
    tab = opened("hull")
    tab.page.evaluate(
        """() => {
          const app = globalThis.plimsollDashboard;
          globalThis.taken = [];
          const take = app.take.bind(app);
          app.take = (message) => { globalThis.taken.push(message); take(message); };
        }"""
    )
    frames = "taken.filter((each) => each.topic?.startsWith('node/')).length"
    tab.page.wait_for_function(f"() => {frames} >= 2")
    tab.page.evaluate("globalThis.plimsollDashboard.stream.drop()")
    tab.page.wait_for_selector('[data-connection="lost"]')
    name = f"meanwhile-{secrets.token_hex(3)}"
    cluster.run(name, "exec sleep 10000")
    tab.page.wait_for_selector('[data-connection="open"]')
    tab.page.wait_for_selector(f'[data-pod="{name}"]')
    taken = tab.page.evaluate(
        "taken.map((each) => [each.kind, each.topic, each.seq, each.data?.seq, each.data?.since ?? 0])"
    )
    assert tab.page.evaluate("globalThis.plimsollDashboard.stream.resumed") >= 1
    assert "snapshot" not in [kind for kind, *_ in taken], "it continues with changes"
    sequence = [seq for _, _, seq, _, _ in taken]
    assert sequence == sorted(set(sequence))
    nodes = [(seq, since) for _, topic, _, seq, since in taken if topic.startswith("node/")]
    for (before, _), (_, since) in itertools.pairwise(nodes):
        assert since in (before, 0), nodes  # each frame begins where the last one ended, or is complete
    assert tab.is_same_document()
    cluster.delete(name)


POD = "pod/default/steady"


def test_every_view_is_accessible(opened: Opened, cluster: Cluster) -> None:
    """axe-core finds nothing serious or critical in any view, nor in the tables, which are all made alike."""
    tab = opened("hull")
    tab.page.wait_for_selector('[data-pod="steady"]')
    axe = Axe()
    for view in (*VIEWS, POD):
        tab.go(view)
        settled(tab, view)
        tab.picture(f"{view.replace('/', '-')}-light")
        assert violations(axe, tab) == [], view
    for view in ("hull", "node", "next", "explain", "fleet", POD):
        tab.go(view)
        settled(tab, view)
        tab.page.get_by_role("button", name="Show as table").first.click()
        tab.page.wait_for_selector("table[data-twin]")
        if view in ("hull", "node"):
            assert violations(axe, tab) == [], f"table of {view}"


def test_a_dark_theme_has_contrast(opened: Opened, cluster: Cluster) -> None:
    """By the system's preference; the switch overrides it. A theme changes nothing but colours."""
    tab = opened("hull", color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(ground)
    axe = Axe()
    for view in ("hull", "node", "next", POD):
        tab.go(view)
        settled(tab, view)
        tab.picture(f"{view.replace('/', '-')}-dark")
        assert violations(axe, tab, ("color-contrast",)) == [], view
    tab.page.get_by_role("button", name="Theme: system").click()
    tab.page.get_by_role("button", name="Theme: light").wait_for()
    assert tab.page.evaluate(ground) != dark


def test_a_phone_does_not_scroll_sideways(opened: Opened, cluster: Cluster) -> None:
    tab = opened("hull", viewport={"width": 320, "height": 700})
    for view in (*VIEWS, POD):
        tab.go(view)
        settled(tab, view)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 320, view
        tab.picture(f"{view.replace('/', '-')}-320")


def settled(tab: Tab, view: str) -> None:
    what = {"explain": "[data-explained]", "replay": "[data-player]", "hull": "[data-vessel]", "next": "ol.rail li"}
    tab.page.wait_for_selector(what.get(view, "main .card"))


def violations(axe: Axe, tab: Tab, rules: Sequence[str] = ()) -> list[str]:
    """`rules`: only these; a theme changes nothing but colours."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = axe.run(tab.page, options=options).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in ("serious", "critical")
    ]


def test_the_keyboard_reaches_a_vessel_and_shows_its_formula(opened: Opened, cluster: Cluster) -> None:
    tab = opened("hull")
    vessel = tab.page.locator('[data-pod="steady"] [data-level="container"]')
    vessel.focus()
    tab.page.keyboard.press("Shift+Tab")
    tab.page.keyboard.press("Tab")
    assert vessel.evaluate("each => document.activeElement === each")
    details = tab.page.locator("[data-inspector]")
    details.get_by_text("spec.containers[0].resources.limits.memory").wait_for()
    assert "oom_score_adj" in details.inner_text()
    tab.picture("hull-inspector")


def test_who_goes_next_and_replay(opened: Opened, cluster: Cluster) -> None:
    cluster.run("loose", "exec python3 -c 'import time; kept = bytearray(8 << 20); time.sleep(10000)'")
    tab = opened("next")
    tab.page.wait_for_selector('li[data-place="1"][data-pod="loose"]')  # uses more than its request, which is 0
    assert "larger excess" in tab.page.locator('li[data-place="1"]').first.inner_text()  # than that of crawler
    tab.go("replay")
    player = tab.page.locator("[data-player]")
    player.wait_for()
    last = int(player.get_attribute("data-frame") or "0")
    assert last >= 1
    tab.page.get_by_role("button", name="Back one frame").click()
    tab.page.wait_for_selector(f'[data-player][data-frame="{last - 1}"]')
    cluster.delete("loose")


def test_explain_asks_the_rules_and_a_link_carries_the_question(opened: Opened, cluster: Cluster) -> None:
    tab = opened("explain")
    tab.page.wait_for_selector("[data-explained]")
    tab.page.get_by_label("Manifest", exact=True).fill(
        "resources:\n  requests: {memory: 1Gi}\n  limits: {memory: 2Gi}\n"
    )
    tab.page.get_by_label("beside it").select_option("1.36")
    tab.page.get_by_role("button", name="Explain", exact=True).click()
    first = tab.page.locator('[data-explained="documents"]')
    first.get_by_text("high", exact=False).first.wait_for()
    # 02 §4: ⌊(1Gi + (2Gi − 1Gi) · 0.9) / 4096⌋ · 4096
    expected = ((1 << 30) + (1 << 30) * 9 // 10) // 4096 * 4096
    until(lambda: f"= {expected}" in first.inner_text(), first.inner_text)
    assert "assumed" in first.inner_text()
    tab.page.wait_for_selector('[data-explained="1.36"]')
    tab.picture("explain-two")
    tab.page.get_by_role("button", name="Share as link").click()
    link = tab.page.evaluate("location.href")
    assert "1Gi" not in link.split("#")[0]
    again = opened(link.split("#/")[1])
    until(lambda: f"= {expected}" in again.page.locator('[data-explained="documents"]').inner_text())
