#include "report/page.h"

namespace prunex::report {

// The looks of a report. Colours are those of Okabe and Ito, darkened on white and lightened on black until they are
// told apart in both; dashes, marks and order repeat what colours say.
// No '<' or '&': the page is XML, too.
const char* const kStyleSheet = R"css(
:root{--paper:#fff;--ink:#1b1f24;--faint:#5c6670;--grid:#e3e6ea;--box:#f5f6f8;--off:#d9dde2;--other:#aab2bb;--c0:#0068a8;
--c1:#c94f00;--c2:#00805e;--c3:#b0467f;--c4:#a87400;--c5:#3d94cf;--c6:#6b5b4e}
@media (prefers-color-scheme:dark){:root{--paper:#15181c;--ink:#e7eaee;--faint:#9aa4af;--grid:#2c3138;--box:#1e2228;
--off:#343a42;--other:#5b646e;--c0:#5db4f2;--c1:#ff8a47;--c2:#35c79c;--c3:#ec93c6;--c4:#efb73a;--c5:#a5d8ff;--c6:#c2b2a3}}
*{box-sizing:border-box}
body{overflow-wrap:anywhere;margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1400px;margin:0 auto;padding:24px}
h1{font-size:26px;margin:0 0 8px}h2{font-size:21px;margin:36px 0 6px}h3{font-size:18px;margin:32px 0 8px}
h4{font-size:16px;margin:0 0 6px}
p{margin:4px 0 10px;max-width:90ch}
code{font:12.5px/1.45 ui-monospace,monospace;background:var(--box);padding:1px 4px;border-radius:3px;overflow-wrap:anywhere}
.note,footer,figcaption,.setup{color:var(--faint);font-size:13px}.note{max-width:120ch}
.verdict,.contents{margin:8px 0 12px;padding-left:20px;max-width:110ch}.verdict li:first-child{font-weight:600}
footer{margin-top:40px;border-top:1px solid var(--grid)}footer h3{font-size:15px;margin:16px 0 4px;color:var(--ink)}
footer ul{margin:0;padding-left:20px}a{color:var(--c0)}
.missing{color:var(--ink);font-size:13px;border-left:3px solid var(--c4);padding-left:10px}
@media screen{.figures{columns:2 540px;column-gap:20px}}
figure.wide{column-span:all;margin-top:20px}
figure{margin:0 0 20px;padding:16px;break-inside:avoid;border:1px solid var(--grid);border-radius:8px;min-width:0}
svg{display:block;width:100%;height:auto;max-width:760px}
.legend{list-style:none;margin:0 0 6px;padding:0;display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px}
.legend li{display:flex;align-items:center;gap:6px}
.legend svg{width:34px;height:12px;flex:none}.legend.boxes svg{width:12px}
.scroll{overflow-x:auto;max-height:600px;overflow-y:auto}.summary .scroll,.wide>.scroll{max-height:none}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;vertical-align:bottom;font-weight:600;position:sticky;top:0;background:var(--paper)}
th,td{padding:4px 14px 4px 0;border-bottom:1px solid var(--grid)}
td{white-space:nowrap}.num{text-align:right}td svg{display:inline-block;width:34px;height:12px;margin-right:8px}
details{margin-top:8px}summary{cursor:pointer;font-size:13px;color:var(--faint)}
text{font:12.5px system-ui,sans-serif;fill:var(--ink)}text.small{font-size:11.5px;fill:var(--faint);paint-order:stroke;stroke:var(--paper);stroke-width:3px;
stroke-linejoin:round}
.g{stroke:var(--grid)}.a{stroke:var(--faint)}.r{stroke:var(--faint);stroke-dasharray:3 3}
.s0{color:var(--c0)}.s1{color:var(--c1)}.s2{color:var(--c2)}.s3{color:var(--c3)}.s4{color:var(--c4)}.s5{color:var(--c5)}
.s6{color:var(--c6)}.n{color:var(--faint)}.o{color:var(--other)}
.l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.b{fill:currentColor;opacity:.16}.m{fill:currentColor;stroke:var(--paper);stroke-width:1}
.w{stroke:currentColor;stroke-width:1.5}.f{fill:currentColor;stroke:var(--paper);stroke-width:.7}
.px{image-rendering:pixelated}.q1{opacity:.2}.q2{opacity:.4}.q3{opacity:.6}.q4{opacity:.8}
.on{fill:var(--c0);stroke:var(--paper);stroke-width:.6}.off{fill:var(--off);stroke:var(--paper);stroke-width:.6}
@media print{:root{--paper:#fff;--ink:#000;--faint:#444;--grid:#ddd;--box:#fff;--off:#ddd;--other:#999;--c0:#0068a8;--c1:#c94f00;
--c2:#00805e;--c3:#b0467f;--c4:#a87400;--c5:#3d94cf;--c6:#6b5b4e}tr{break-inside:avoid}details{display:none}
main{max-width:none;padding:0}.figures{display:block}.figures svg{max-width:15cm}.legend svg,td svg{max-width:34px}
.scroll{overflow:visible;max-height:none}table{font-size:9.5px}th,td{padding-right:8px}}
)css";

}  // namespace prunex::report
