// The style sheet of the page: one set of colours for light, one for dark.
#pragma once

#include <string_view>

namespace mezzo::report {

inline constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--page:#f6f6f3;--card:#fff;--ink:#16161a;--soft:#5e5e66;--rule:#e4e4df;
--c0:#2a78d6;--c1:#d95926;--c2:#159a6c;--c3:#7a4fc9;--c4:#c98500;--c5:#c43d78;--c6:#138a9e;--c7:#6b7280}
@media(prefers-color-scheme:dark){:root{--page:#131316;--card:#1d1d21;--ink:#f1f1ef;--soft:#a3a3ad;--rule:#33333a;
--c0:#5b9df0;--c1:#f0825a;--c2:#3cc795;--c3:#a585ec;--c4:#e0ad3a;--c5:#ea7fae;--c6:#4cbccf;--c7:#a1a7b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:26px;margin:0 0 2px}
h2{font-size:16px;margin:0}
.note{color:var(--soft);margin:0 0 14px;font-size:14px}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:9px 12px;text-align:right;white-space:nowrap;border-top:1px solid var(--rule)}
thead th{border-top:0;color:var(--soft);font-weight:500;white-space:normal;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;font-weight:600;color:var(--ink)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:18px 2px;font-size:14px}
.card .legend{margin:0 0 8px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:7px;vertical-align:-1px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:18px 20px;min-width:0}
.wide{grid-column:1/-1}
summary{cursor:pointer;margin-top:8px;font-size:14px}
pre{margin:8px 0 0;overflow-x:auto;font-size:13px}
svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .name,svg .value{font-size:13px;fill:var(--ink)}
.grid{stroke:var(--rule)}
.axis{stroke:var(--soft)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.faint{stroke-width:1;opacity:.22}
.dot{stroke:var(--card);stroke-width:1.5}
.s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}
.s4{--c:var(--c4)}.s5{--c:var(--c5)}.s6{--c:var(--c6)}.s7{--c:var(--c7)}
.line{stroke:var(--c)}.dot,.bar{fill:var(--c)}.legend i{background:var(--c)}
.none{color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:10px 0 0;font-size:14px}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
ul{margin:10px 0 0;padding-left:18px;font-size:14px}
)css";

}  // namespace mezzo::report
