"""The style sheet of a report. It follows the light or dark mode of the reader's system and fits a phone."""

CSS = """
:root {
  --page: #f7f7f5; --card: #fff; --shade: #f3f3f0; --line: #e4e4e0; --ink: #1d1d1f; --soft: #67676d;
  --overall: #8a8f98; --head: #4457d8; --torso: #159a8c; --tail: #e8862e; --good: #14803c; --bad: #c2372e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #131417; --card: #1c1e22; --shade: #24262b; --line: #303238; --ink: #ececee; --soft: #9b9ba3;
    --head: #8391ff; --torso: #3fc4b4; --tail: #f5a45d; --good: #52c878; --bad: #f27d74;
  }
}
* { box-sizing: border-box }
body {
  margin: 0 auto; padding: 3rem 1.25rem 4rem; max-width: 62rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { margin: 0; font-size: 2.1rem; line-height: 1.2; letter-spacing: -.02em }
h2 { margin: 2.75rem 0 .9rem; font-size: 1.3rem; letter-spacing: -.01em }
h3 { margin: 0 0 .6rem; font-size: .95rem }
p { margin: .75rem 0; max-width: 46rem }
header p { margin: .4rem 0 0; color: var(--soft); font-size: 1.1rem }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; unicode-bidi: isolate }
ul { list-style: none; margin: 0; padding: 0 }
.note { color: var(--soft); font-size: .85rem }
.facts, .wide, figure, article {
  margin: 0 0 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .7rem;
}

.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem; padding: 1rem 1.2rem }
dt { color: var(--soft); font-size: .82rem }
dd { margin: 0; font-size: 1.25rem; font-weight: 600; letter-spacing: -.01em; overflow-wrap: anywhere }

.wide { overflow-x: auto }
table { width: 100%; border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .38rem 1.2rem; text-align: left; white-space: nowrap }
th { padding: .6rem 1.2rem; color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line) }
tbody tr:nth-child(even) { background: var(--shade) }
.number { text-align: right }

figure { display: flex; flex-wrap: wrap; gap: .75rem 1.75rem; align-items: center; padding: 1.1rem 1.2rem }
figcaption { flex: 1 1 14rem; font-size: .9rem }
figcaption li { display: flex; gap: .6rem; margin: .45rem 0; color: var(--soft) }
figcaption b { color: var(--ink) }
figcaption i { flex: none; width: .8rem; height: .8rem; margin-top: .33rem; border-radius: .2rem; background: var(--c) }
.overall { --c: var(--overall) }
.head { --c: var(--head) }
.torso { --c: var(--torso) }
.tail { --c: var(--tail) }
svg { flex: 1 1 20rem; min-width: 0; max-width: 36rem; width: 100%; height: auto; font: 14px system-ui, sans-serif }
svg text { fill: var(--soft) }
svg .value { font-size: 12px; fill: var(--ink) }
svg rect { fill: var(--c) }
.grid { stroke: var(--line) }
.area { fill: var(--c); fill-opacity: .16 }
.line { stroke: var(--c); stroke-width: 2.5; fill: none; stroke-linejoin: round; stroke-linecap: round }

article { display: grid; grid-template-columns: 3fr 2fr; gap: .9rem 2.5rem; padding: 1.1rem 1.2rem }
blockquote { grid-column: 1 / -1; margin: 0; font-size: 1.06rem; font-weight: 600; overflow-wrap: anywhere }
.labels {
  display: grid; grid-template-columns: auto auto 1fr auto; gap: .45rem .6rem; align-content: start;
  align-items: baseline; font-size: .93rem;
}
.labels li { display: contents }
.labels code { justify-self: start; padding: .05rem .35rem; border-radius: .3rem; background: var(--shade) }
.labels code, .labels span { overflow-wrap: anywhere }
.hit .sign { color: var(--good); font-weight: 700 }
.false .sign { color: var(--bad) }
.false, .missed { color: var(--soft) }
.score { font-size: .85rem; text-align: right; color: var(--soft); font-variant-numeric: tabular-nums }
.why h3 { color: var(--soft); font-size: .82rem; font-weight: 500 }
.why li {
  display: grid; grid-template-columns: 7.5rem 1fr 3rem; gap: .6rem; align-items: center; font-size: .88rem;
}
.why li span { overflow-wrap: anywhere }
.why i { height: .5rem; min-width: 2px; border-radius: .25rem; background: var(--good) }
.against i { background: var(--bad) }

@media (max-width: 44rem) {
  body { padding: 1.75rem 1rem 3rem }
  h1 { font-size: 1.65rem }
  article { grid-template-columns: 1fr }
  th, td { padding: .35rem .7rem }
  svg { font-size: 17px }
  svg .value { font-size: 14px }
}
"""
