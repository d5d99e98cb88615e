"""The style of all pages: light and dark, wide and narrow, on paper."""

from __future__ import annotations

_COLOURS = """
:root{color-scheme:light dark;
--ground:#fff;--ink:#1c2128;--soft:#59636e;--rule:#d5dbe1;--panel:#f6f8fa;--lane:#edf0f4;
--put:#93a1b1;--done:#cbe5d8;--checkpoint:#0b6b4f;--read:#1f6fd6;--again:#d9730d;--failed:#8a5a00;
--letter:#c4202c;--band:#8250df;--joint:#46505b;
--kept:#0f6b35;--kept-ground:#e6f5eb;--slow:#7a5200;--slow-ground:#fdf3dc;--broken:#b3141f;--broken-ground:#fdecec}
@media (prefers-color-scheme:dark){:root{
--ground:#0f1419;--ink:#e6eaef;--soft:#9aa6b2;--rule:#313a44;--panel:#171d24;--lane:#1d252e;
--put:#61707e;--done:#1b4636;--checkpoint:#4fd1a1;--read:#58a0ff;--again:#f5993d;--failed:#e0b04a;
--letter:#ff6b70;--band:#a98bf5;--joint:#aeb8c3;
--kept:#5bd68a;--kept-ground:#10281b;--slow:#f0b64a;--slow-ground:#33260c;--broken:#ff8087;--broken-ground:#331418}}
@media print{:root{color-scheme:light;
--ground:#fff;--ink:#000;--soft:#444;--rule:#bbb;--panel:#f6f8fa;--lane:#edf0f4;
--put:#93a1b1;--done:#cbe5d8;--checkpoint:#0b6b4f;--read:#1f6fd6;--again:#d9730d;--failed:#8a5a00;
--letter:#c4202c;--band:#8250df;--joint:#46505b;
--kept:#0f6b35;--kept-ground:#e6f5eb;--slow:#7a5200;--slow-ground:#fdf3dc;--broken:#b3141f;--broken-ground:#fdecec}}
"""
_TEXT = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1168px;margin:0 auto;padding:24px}
h1{font-size:26px;line-height:1.25;margin:0;overflow-wrap:anywhere;text-wrap:balance}
h2{font-size:18px;line-height:1.3;margin:40px 0 12px}
p{margin:8px 0;max-width:76ch}
a{color:var(--read)}
code,.value{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
font-size:.9em}
.value{overflow-wrap:anywhere;overflow:clip;display:inline-block;max-width:100%}
.soft{color:var(--soft)}
.over{font-size:13px;color:var(--soft);margin:0 0 4px;letter-spacing:.02em}
footer{margin-top:48px;padding-top:12px;border-top:1px solid var(--rule);color:var(--soft);
font-size:13px}
:focus-visible{outline:2px solid var(--read);outline-offset:2px}
"""
_VERDICT = """
.verdict{display:flex;gap:20px;align-items:center;padding:22px 24px;border-radius:12px;
border:1px solid;margin:0 0 20px}
.verdict>svg{flex:none;width:56px;height:56px}
.verdict p{margin:4px 0 0;color:var(--ink)}
.verdict svg circle{fill:currentColor}
.verdict svg path{fill:none;stroke:var(--sign);stroke-width:5;stroke-linecap:round;
stroke-linejoin:round}
.kept{color:var(--kept);background:var(--kept-ground);--sign:var(--kept-ground)}
.broken{color:var(--broken);background:var(--broken-ground);--sign:var(--broken-ground)}
.promises{margin:0;padding:0;list-style:none}
.promises li{border-left:4px solid var(--broken);background:var(--panel);padding:10px 14px;
margin:0 0 8px;border-radius:0 8px 8px 0;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(6,1fr);gap:1px;margin:0;
background:var(--rule);border:1px solid var(--rule);border-radius:12px;overflow:hidden}
.figures div{background:var(--ground);padding:12px 16px;display:flex;
flex-direction:column-reverse;
justify-content:flex-end}
.figures dt{color:var(--soft);font-size:13px;line-height:1.35}
.figures dd{margin:0;font-size:22px;
line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}
.figures .bad dd{color:var(--broken)}
"""
_TABLES = """
.scroll{overflow-x:auto}
.scroll+.scroll{margin-top:20px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
caption{caption-side:top;text-align:left;color:var(--soft);font-size:13px;padding:0 0 6px}
th,td{text-align:left;vertical-align:top;padding:7px 14px 7px 0;
border-bottom:1px solid var(--rule)}
th:last-child,td:last-child{padding-right:0}
tbody th{font-weight:400}
thead th{font-weight:600;font-size:13px;color:var(--soft);white-space:nowrap;
border-bottom-color:var(--soft)}
td:not(.number),tbody th:not(.number){min-width:20ch}
.number{text-align:right;white-space:nowrap;width:1%}
.id{white-space:nowrap}
.tag{display:inline-block;min-width:22px;padding:0 6px;border-radius:11px;background:var(--band);
color:var(--ground);text-align:center;font-size:12px;line-height:20px;font-weight:600}
"""
_TIMELINE = """
figure{margin:0}
figure>.scroll{border:1px solid var(--rule);border-radius:12px;padding:4px 8px}
figure svg{display:block}
figure>.scroll>svg{width:100%;min-width:860px;height:auto}
figcaption{color:var(--soft);font-size:13px;margin-top:6px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 10px;padding:0;
font-size:13px;color:var(--soft)}
.legend li{display:flex;align-items:center;gap:6px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--ink)}
svg .tick{fill:var(--soft);text-anchor:middle;font-size:11px}
svg .name{text-anchor:end;font-size:11px}
svg .note{text-anchor:end;font-size:11px;fill:var(--soft)}
svg text.badge{fill:var(--ground);text-anchor:middle;font-size:11px;font-weight:600}
svg rect.badge{fill:var(--band)}
svg .grid{stroke:var(--rule);stroke-width:1;shape-rendering:crispEdges}
svg .lane{fill:var(--lane)}
svg .put{fill:var(--put)}
svg .done{fill:var(--done)}
svg .checkpoint{fill:none;stroke:var(--checkpoint);stroke-width:2;stroke-linejoin:round}
svg .checkpoint.low{stroke-width:1.25}
svg .read{fill:var(--read)}
svg .d1{fill-opacity:.22}svg .d2{fill-opacity:.4}svg .d3{fill-opacity:.6}svg .d4{fill-opacity:.8}
svg .again{fill:var(--again)}
svg .late{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;fill:none}
svg .failed{fill:var(--failed)}
svg .letter{fill:var(--letter);stroke:var(--ground);stroke-width:.75}
svg .failed.low{stroke:var(--failed);stroke-width:1.5}
svg .letter.low{stroke:var(--letter);stroke-width:2}
svg .band{fill:var(--band);fill-opacity:.3}
svg .after{fill:var(--band);fill-opacity:.1}
svg .joint{fill:none;stroke:var(--joint);stroke-width:1.5;stroke-linejoin:round}
svg .joint.dot{stroke-width:6;stroke-linecap:round}
"""
_LIVE = """
.slow{color:var(--slow);background:var(--slow-ground);--sign:var(--slow-ground)}
.banner{border:1px solid var(--broken);border-left-width:6px;border-radius:8px;padding:10px 14px;
margin:0 0 16px;max-width:none;color:var(--broken);background:var(--broken-ground);
overflow-wrap:anywhere}
.banner[hidden]{display:none}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0 0 20px}
.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
.chip{display:inline-block;padding:0 8px;border-radius:10px;font-size:12px;line-height:20px;
font-weight:600;white-space:nowrap;border:1px solid}
.chip.unsure{color:var(--soft)}
td.short,tbody th.short{min-width:0;white-space:nowrap;width:1%}
.causes{list-style:none;margin:0;padding:0}
.causes>li{border-left:4px solid var(--rule);background:var(--panel);padding:10px 14px;
margin:0 0 10px;border-radius:0 8px 8px 0;overflow-wrap:anywhere}
.causes>li.bad{border-left-color:var(--broken)}.causes>li.slow{border-left-color:var(--slow);
color:inherit;background:var(--panel)}
.causes h3{font-size:15px;margin:0 0 4px}
.causes p{margin:2px 0;max-width:none}
.causes ul{margin:6px 0 0;padding-left:20px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:16px}
.chart{border:1px solid var(--rule);border-radius:12px;padding:10px 14px;min-width:0}
.chart figcaption{margin:0 0 4px}.chart figcaption .name{color:var(--ink);font-weight:600}
.chart figcaption p{margin:0}
.chart svg{width:100%;height:auto}
svg .line{fill:none;stroke:var(--read);stroke-width:1.75;stroke-linejoin:round;
stroke-linecap:round}
svg .from,svg .to{fill:var(--soft);font-size:11px}svg .to{text-anchor:end}
svg .acked{fill:var(--done)}svg .unacked{fill:var(--read);fill-opacity:.35}
svg .partly{fill:var(--again);fill-opacity:.25}svg .unread{fill:var(--again);fill-opacity:.6}
svg .stop{fill:var(--checkpoint)}svg .reader{fill:var(--read)}
svg .lane.slow{stroke:var(--slow);stroke-width:1.5}
svg .lane.bad{stroke:var(--broken);stroke-width:2}
svg .lane.unsure{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.finder{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:center;margin:0 0 12px}
.finder input,.finder button{font:inherit;color:inherit;background:var(--ground);
border:1px solid var(--soft);border-radius:6px;padding:4px 10px}
.finder input{width:24ch;max-width:100%}
.finder button{background:var(--panel);cursor:pointer}
.pages{display:flex;flex-wrap:wrap;gap:4px 14px;margin:10px 0;padding:0;list-style:none;
font-size:14px}
[aria-current]{font-weight:600;color:inherit;text-decoration:none}
"""
_NARROW_AND_PAPER = """
@media (max-width:900px){.figures{grid-template-columns:repeat(3,1fr)}}
@media (max-width:640px){main{padding:14px}h1{font-size:21px}
.verdict{padding:16px;gap:14px;align-items:flex-start}.verdict>svg{width:36px;height:36px}
.facts{grid-template-columns:1fr}.facts dd{margin:0 0 6px}
.figures{grid-template-columns:repeat(2,1fr)}.figures div{padding:10px 12px}
.figures dd{font-size:18px}}
@media print{body{font-size:11px}main{max-width:none;padding:0}*{print-color-adjust:exact}
.scroll{overflow:visible}figure>.scroll>svg{min-width:0;max-height:230mm}
h2{break-after:avoid}tr,.verdict,.figures,.promises li,figure{break-inside:avoid}
thead{display:table-header-group}}
"""
STYLESHEET = _COLOURS + _TEXT + _VERDICT + _TABLES + _TIMELINE + _LIVE + _NARROW_AND_PAPER
