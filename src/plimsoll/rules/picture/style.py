"""The style sheet of pictures: light and dark by the reader's preference, distinct without colour.

Lines differ in thickness and dashes, fills in pattern, and every line has a label.
"""

from __future__ import annotations

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b2230",
    "muted": "#566072",
    "edge": "#c5ccd8",
    "node": "#f4f6f9",
    "pods": "#ffffff",
    "class": "#eef2f8",
    "pod": "#ffffff",
    "container": "#f9fafc",
    "min": "#0b7a3b",
    "low": "#4d7c0f",
    "high": "#b45309",
    "max": "#c0162c",
    "kept": "#d5efdf",
    "low-band": "#e6f0d3",
    "free": "#ffffff",
    "throttled": "#fbe3c2",
    "anon": "#2563c9",
    "shmem": "#2563c9",
    "kernel": "#6d4bc3",
    "file": "#0e7c86",
    "other": "#8a93a3",
    "share": "#3b4a63",
    "allocatable": "#dbe7f7",
}
_DARK = {
    "paper": "#10141c",
    "ink": "#e8ecf3",
    "muted": "#a5afc0",
    "edge": "#3b4557",
    "node": "#161b26",
    "pods": "#10141c",
    "class": "#1b2230",
    "pod": "#131824",
    "container": "#1d2432",
    "min": "#4cc47f",
    "low": "#a3c94f",
    "high": "#f0a23c",
    "max": "#ff6b7d",
    "kept": "#17402a",
    "low-band": "#2c3a14",
    "free": "#10141c",
    "throttled": "#4a3413",
    "anon": "#6ea0f5",
    "shmem": "#6ea0f5",
    "kernel": "#b09af0",
    "file": "#54c4cd",
    "other": "#7c8698",
    "share": "#b9c6dc",
    "allocatable": "#24364f",
}
_SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif"
_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

_SHAPES = f"""text{{font-family:{_MONO};font-size:9.5px}}
.title,.name,.side,.facts,.badge,.key{{font-family:{_SANS}}}
.title{{font-size:18px;font-weight:700}}
.side{{font-size:15px;font-weight:700}}
.name{{font-size:14px;font-weight:650}}
.facts,.badge{{font-size:11.5px}}
.key{{font-size:10.5px}}
.value{{font-size:11.5px;font-weight:600}}
.value.above{{font-weight:400}}
.changed{{text-decoration:underline}}
.source,.note{{font-style:italic}}
.warn,.strong{{font-weight:600}}
.band-word{{font-family:{_SANS};font-size:9.5px}}
.frame{{stroke-width:1}}
.hull{{fill:none;stroke-width:2.5;stroke-linejoin:round}}
.hull-box{{fill:none;stroke-width:1}}
.line,.leader,.break,.mark,.cpu-use{{fill:none}}
.line{{stroke-width:2}}
.line.low{{stroke-dasharray:2 3}}
.line.high{{stroke-dasharray:7 4;stroke-width:2.5}}
.line.max{{stroke-width:4}}
.line.above{{stroke-width:1.5;stroke-dasharray:1 3}}
.leader{{stroke-width:.75}}
.mark{{stroke-width:2;stroke-dasharray:3 2}}
.break{{stroke-width:1.5}}
.cpu-use{{stroke-width:2.5}}
.hatched{{fill:url(#pl-hatch)}}
.fill.shmem{{fill:url(#pl-shmem)}}
.fill.kernel{{fill:url(#pl-kernel)}}
.fill.activeFile{{fill:url(#pl-active)}}
.fill.inactiveFile{{fill:url(#pl-inactive)}}
.part.withheld{{fill:url(#pl-hatch)}}
"""


def _pattern(name: str, size: int, inside: str) -> str:
    ground = f'<rect class="ground" width="{size}" height="{size}"/>' if name != "hatch" else ""
    box = f'width="{size}" height="{size}" patternUnits="userSpaceOnUse"'
    return f'<pattern id="pl-{name}" {box}>{ground}{inside}</pattern>'


PATTERNS = (
    _pattern("hatch", 6, '<path class="ink-stroke" d="M-1 7L7-1M-1 1L1-1M5 7L7 5"/>')
    + _pattern("shmem", 6, '<path class="shmem-stroke" d="M0 0L6 6M6 0L0 6"/>')
    + _pattern("kernel", 4, '<path class="kernel-stroke" d="M2 0V4"/>')
    + _pattern("active", 5, '<circle class="file-fill" cx="2.5" cy="2.5" r="1.5"/>')
    + _pattern("inactive", 8, '<circle class="file-fill" cx="4" cy="4" r="1"/>')
)


def _colours(colour: dict[str, str]) -> str:
    rules = [
        f"text{{fill:{colour['ink']}}}",
        f".formula,.facts,.badge,.band-word,.key,.value.above{{fill:{colour['muted']}}}",
        f".formula.strong{{fill:{colour['ink']}}}",
        f".formula.warn,.changed{{fill:{colour['max']}}}",
        f".paper{{fill:{colour['paper']}}}",
        f".frame{{stroke:{colour['edge']}}}",
        f".hull,.mark,.break{{stroke:{colour['ink']}}}",
        f".cpu-use{{stroke:{colour['high']}}}",
        f".hull-box{{stroke:{colour['muted']}}}",
        f".leader{{stroke:{colour['muted']}}}",
        f".ink-stroke{{stroke:{colour['ink']};stroke-width:1}}",
        f".ground{{fill:{colour['paper']}}}",
        f".shmem-stroke{{stroke:{colour['shmem']};stroke-width:1.2}}",
        f".kernel-stroke{{stroke:{colour['kernel']};stroke-width:1.8}}",
        f".file-fill{{fill:{colour['file']}}}",
        f".fill.anon{{fill:{colour['anon']}}}",
        f".fill.other{{fill:{colour['other']}}}",
        f".band.kept{{fill:{colour['kept']}}}",
        f".band.low{{fill:{colour['low-band']}}}",
        f".band.free,.cpu-track{{fill:{colour['free']}}}",
        f".cpu-track{{stroke:{colour['muted']}}}",
        f".cpu-share{{fill:{colour['share']}}}",
        f".band.throttled{{fill:{colour['throttled']}}}",
        f".part.allocatable{{fill:{colour['allocatable']}}}",
    ]
    rules += [f".frame.{name}{{fill:{colour[name]}}}" for name in ("node", "pods", "class", "pod", "container")]
    rules += [f".frame.{name}{{fill:{colour['container']}}}" for name in ("reserved", "sandbox", "monitor", "cgroup")]
    rules += [f".line.{name}{{stroke:{colour[name]}}}" for name in ("min", "low", "high", "max")]
    return "\n".join(rules)


def sheet() -> str:
    return f"{_SHAPES}{_colours(_LIGHT)}\n@media (prefers-color-scheme:dark){{\n{_colours(_DARK)}\n}}\n"


PAGE_SHEET = f"""body{{font-family:{_SANS};margin:1.5rem auto;max-width:84rem;padding:0 1rem;line-height:1.45}}
body{{color:#1b2230;background:#fff}}
h1{{font-size:1.4rem}}h2{{font-size:1.1rem;margin-top:2rem}}
.wide{{overflow-x:auto}}
svg{{max-width:100%;height:auto}}
table{{border-collapse:collapse;font-size:.85rem;width:100%}}
th,td{{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #c5ccd8}}
td.number{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
td.formula{{font-family:{_MONO};font-size:.78rem;min-width:12rem}}
caption{{text-align:left;color:#566072;padding:.3rem 0}}
li{{margin:.2rem 0}}
@media (prefers-color-scheme:dark){{body{{background:#10141c;color:#e8ecf3}}
th,td{{border-color:#3b4557}}caption{{color:#a5afc0}}}}
@media print{{body{{max-width:none;margin:0}}}}
"""
