"""The style sheet of the HTML gallery."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2024; --faint: #5b636d; --paper: #fff; --card: #f4f5f7; --line: #d6dade;
  --link: #0b57b7; --note: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --faint: #a3abb5; --paper: #14161a; --card: #1e2227;
  --line: #363c44; --link: #8ab8ff; --note: #f0b35e; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4rem; }
body { margin: 0 auto; padding: 0 1rem 3rem; max-width: 100rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 1.2rem 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font: 600 1rem/1.3 ui-monospace, monospace; margin: 0; overflow-wrap: anywhere; }
p { margin: .2rem 0 .6rem; max-width: 60rem; color: var(--faint); }
ul, ol { list-style: none; margin: 0; padding: 0; }
a { color: var(--link); }
a:focus-visible, input:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav h2 { font-size: .85rem; margin: .6rem 0 .2rem; border: 0; padding: 0; color: var(--faint); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
nav a { display: inline-block; padding: .2rem 0; }
fieldset { position: sticky; top: 0; z-index: 1; margin: 1rem -1rem 0; padding: .5rem 1rem; border: 0;
  border-bottom: 1px solid var(--line); background: var(--paper); }
legend { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
label { display: inline-block; margin-right: 1rem; padding: .2rem 0; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .8rem; line-height: 1.35; padding-top: .35rem; overflow-wrap: anywhere; color: var(--faint); }
figcaption b { color: var(--ink); font: 600 .8rem ui-monospace, monospace; }
img { display: block; width: 100%; height: auto; }
.detail { display: none; image-rendering: pixelated; }
body:has(#details:checked) .detail { display: block; }
body:has(#details:checked) .whole { display: none; }
.clean { max-width: var(--tile); margin-bottom: .8rem; }
.note { color: var(--note); }
.none { display: grid; place-items: center; min-height: 5rem; border: 1px dashed var(--line); color: var(--faint); }
.rows { display: flex; flex-wrap: wrap; gap: 1rem; align-items: stretch; }
.row { flex: 0 1 auto; min-width: 0; padding: .75rem; border-radius: .5rem; background: var(--card); }
.row > p { font-size: .85rem; max-width: none; }
.tiles .row { width: min(100%, var(--tiles) * (var(--tile) + .6rem) + .9rem); }
.tiles .single { width: min(50% - .5rem, var(--tile) + 1.5rem); }
.tiles .strip { display: flex; flex-wrap: wrap; gap: .6rem; }
.tiles figure { width: min(var(--tile), (100% - (var(--across) - 1) * .6rem) / var(--across)); }
.sizes .row, .views .row { width: 100%; }
.sizes .strip, .views .strip { display: flex; flex-wrap: wrap; gap: 1.2rem .8rem; align-items: flex-end; }
.sizes .strip { --longest: min(2 * var(--tile), 100vw - 4rem); }
.sizes figure { min-width: 6.5rem; max-width: 100%; width: calc(var(--longest) * var(--share) * var(--ratio)); }
.sizes img { width: calc(var(--longest) * var(--share) * var(--ratio)); }
.sizes figcaption { min-height: 7rem; }
.views figure { width: min(100%, 2 * var(--tile)); }
.grid { display: grid; gap: .4rem; grid-template-columns: repeat(var(--columns), 1fr); counter-reset: view; }
.grid li { position: relative; counter-increment: view; }
.grid li::after { content: counter(view); position: absolute; top: 0; left: 0; min-width: 1.5em; padding: 0 .3em;
  font-size: .75rem; text-align: center; background: #000; color: #fff; }
@media print { fieldset { display: none; } .row { break-inside: avoid; } }
"""
