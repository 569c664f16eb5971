// The styles, as a constructable sheet: the page's policy needs no `unsafe-inline`, and its own rules do not reach in here.
//
// In a shadow root, important rules of `:host` come before all rules of the page, also before its important ones.

const COLOURS = `
  --_accent: var(--amalgam-accent, #2c4fd6);
  --_accent-text: var(--amalgam-accent-text, #ffffff);
  --_background: var(--amalgam-background, #ffffff);
  --_text: var(--amalgam-text, #171b22);
  --_muted: var(--amalgam-muted, #566070);
  --_surface: var(--amalgam-surface, #eef0f4);
  --_line: var(--amalgam-line, #c3c9d3);
  --_link: var(--amalgam-link, #2440b8);
  --_bad: var(--amalgam-error, #ad231c);`;

const DARK = `
  --_accent: var(--amalgam-accent, #90aaff);
  --_accent-text: var(--amalgam-accent-text, #0b1230);
  --_background: var(--amalgam-background, #151a21);
  --_text: var(--amalgam-text, #e7eaf0);
  --_muted: var(--amalgam-muted, #9aa5b5);
  --_surface: var(--amalgam-surface, #222935);
  --_line: var(--amalgam-line, #4a5466);
  --_link: var(--amalgam-link, #a9bdff);
  --_bad: var(--amalgam-error, #ff958c);`;

const CSS = `
:host { all: initial !important; display: block !important; }
:host([hidden]) { display: none !important; }
.root {
  ${COLOURS}
  color-scheme: light;
  font: 400 var(--amalgam-font-size, 15px)/1.5 var(--amalgam-font, ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif);
  color: var(--_text); text-align: start; box-sizing: border-box;
}
@media (prefers-color-scheme: dark) { .root { ${DARK} color-scheme: dark; } }
.root *, .root *::before { box-sizing: border-box; }
p, ul, ol, pre, blockquote, h2 { margin: 0; padding: 0; }
[hidden] { display: none !important; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
button { font: inherit; color: inherit; background: none; border: 0; border-radius: 8px; padding: 0; cursor: pointer; }
button:focus-visible, a:focus-visible, textarea:focus-visible, .log:focus-visible, .card:focus-visible, pre:focus-visible { outline: 2px solid var(--_accent); outline-offset: 2px; }
svg { width: 22px; height: 22px; display: block; fill: none; stroke: currentColor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
.bubble {
  position: fixed; z-index: var(--amalgam-z-index, 2147483000); inset-block-end: var(--amalgam-offset, 20px); inset-inline-end: var(--amalgam-offset, 20px);
  width: 56px; height: 56px; border-radius: 50%; display: grid; place-items: center;
  background: var(--_accent); color: var(--_accent-text); box-shadow: 0 4px 16px rgb(0 0 0 / 30%);
}
.window {
  display: flex; flex-direction: column; overflow: hidden; background: var(--_background);
  border: 1px solid var(--_line); border-radius: var(--amalgam-radius, 14px);
}
.floating .window {
  position: fixed; z-index: var(--amalgam-z-index, 2147483000); inset-block-end: calc(var(--amalgam-offset, 20px) + 68px); inset-inline-end: var(--amalgam-offset, 20px);
  width: min(var(--amalgam-width, 400px), calc(100vw - 24px)); height: min(var(--amalgam-height, 640px), calc(100dvh - 112px));
  box-shadow: 0 16px 48px rgb(0 0 0 / 30%);
}
.inline .window { width: var(--amalgam-width, 100%); height: var(--amalgam-height, 560px); }
@media (max-width: 480px) { .floating .window { inset-inline: 8px; inset-block: 8px 84px; width: auto; height: auto; } }
header { display: flex; align-items: center; gap: 4px; padding: 10px 10px 10px 16px; border-bottom: 1px solid var(--_line); }
h2 { flex: 1; min-width: 0; font-size: 1em; font-weight: 650; overflow-wrap: anywhere; }
.tool { width: 36px; height: 36px; display: grid; place-items: center; color: var(--_muted); }
.tool:hover { background: var(--_surface); color: var(--_text); }
.log { position: relative; flex: 1; min-height: 0; overflow-y: auto; padding: 16px; display: flex; flex-direction: column; gap: 14px; overscroll-behavior: contain; outline-offset: -2px; }
.log > .quiet { align-self: center; }
.message { max-width: 100%; display: flex; flex-direction: column; gap: 10px; overflow-wrap: anywhere; }
.user { align-self: flex-end; max-width: 85%; background: var(--_accent); color: var(--_accent-text); border-radius: 14px 14px 4px 14px; padding: 8px 12px; white-space: pre-wrap; }
.text { display: flex; flex-direction: column; gap: 8px; }
.text:empty { display: none; }
.heading { font-weight: 650; }
.h1, .h2 { font-size: 1.1em; }
ul, ol { padding-inline-start: 1.5em; }
li > ul, li > ol { margin-top: 4px; }
blockquote { border-inline-start: 3px solid var(--_line); padding-inline-start: 12px; color: var(--_muted); }
code { font: .9em ui-monospace, 'SF Mono', 'DejaVu Sans Mono', monospace; background: var(--_surface); border-radius: 4px; padding: 1px 4px; }
pre { background: var(--_surface); border-radius: 8px; padding: 10px 12px; overflow-x: auto; white-space: pre; }
pre code { padding: 0; background: none; }
hr { border: 0; border-top: 1px solid var(--_line); width: 100%; margin: 0; }
a { color: var(--_link); text-underline-offset: 2px; }
.hint, .count, .status { color: var(--_muted); font-size: .9em; }
.status:empty { display: none; }
.status::before { content: ''; display: inline-block; width: .6em; height: .6em; margin-inline-end: .5em; border-radius: 50%; background: var(--_accent); animation: pulse 1.2s ease-in-out infinite; }
.status.still::before { display: none; }
@keyframes pulse { 50% { opacity: .25; } }
@media (prefers-reduced-motion: reduce) { .status::before { animation: none; } }
.courses { display: flex; flex-direction: column; gap: 8px; }
.cards { list-style: none; padding: 0; display: flex; flex-direction: column; gap: 8px; }
.card, .panel-course { border: 1px solid var(--_line); border-radius: 10px; padding: 10px 12px; display: flex; flex-direction: column; gap: 6px; }
.name { font-weight: 600; }
.about { font-size: .93em; color: var(--_muted); }
.card .about { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.badges { display: flex; flex-wrap: wrap; gap: 6px; }
.badge { font-size: .8em; background: var(--_surface); border-radius: 999px; padding: 1px 9px; }
.progress { display: flex; align-items: center; gap: 8px; font-size: .85em; color: var(--_muted); }
progress { flex: 1; height: 6px; appearance: none; border: 0; border-radius: 3px; overflow: hidden; background: var(--_surface); }
progress::-webkit-progress-bar { background: var(--_surface); }
progress::-webkit-progress-value { background: var(--_accent); }
progress::-moz-progress-bar { background: var(--_accent); }
.quiet { align-self: flex-start; border: 1px solid var(--_line); padding: 5px 12px; font-size: .93em; }
.quiet:hover { background: var(--_surface); }
.problem { display: flex; flex-direction: column; gap: 8px; color: var(--_bad); }
.problem .quiet { color: var(--_text); }
form { display: flex; align-items: flex-end; gap: 8px; padding: 10px; border-top: 1px solid var(--_line); margin: 0; }
textarea {
  flex: 1; min-width: 0; font: inherit; color: var(--_text); background: var(--_background); border: 1px solid var(--_muted); border-radius: 10px;
  padding: 8px 12px; margin: 0; resize: none; min-height: 42px; max-height: 140px; field-sizing: content;
}
textarea::placeholder { color: var(--_muted); opacity: 1; }
.send { width: 42px; height: 42px; flex: none; display: grid; place-items: center; background: var(--_accent); color: var(--_accent-text); border-radius: 10px; }
@media (forced-colors: active) { .bubble, .send, .user { border: 1px solid; } }
`;

let shared: CSSStyleSheet | null = null;

/** One sheet for all elements of a page. */
export function styleSheet(): CSSStyleSheet {
  if (!shared) {
    shared = new CSSStyleSheet();
    shared.replaceSync(CSS);
  }
  return shared;
}
