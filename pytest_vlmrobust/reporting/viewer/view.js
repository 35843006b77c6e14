/* What comes from models, datasets and runs is only ever set as text. */
(() => {
  const el = (tag, css, ...children) => {
    const node = document.createElement(tag);
    if (css) node.className = css;
    node.append(...children);
    return node;
  };
  const verdict = (entry) => {
    const sign = el("span", "", entry.sign);
    sign.setAttribute("aria-hidden", "true");
    return [sign, " "];
  };
  const link = (url, ...children) => {
    const node = el("a", "", ...children);
    node.href = url;
    return node;
  };

  const fold = document.querySelector(".fold");
  if (fold && innerWidth <= 640) fold.open = false;

  /* A list is shown as soon as something is chosen; a text is sent with Enter. */
  const form = document.querySelector(".filters");
  form?.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement) form.requestSubmit();
  });
  form?.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && field.value === "") field.disabled = true; // addresses stay short
  });
  addEventListener("pageshow", () => {
    for (const field of form?.elements || []) field.disabled = false;
  });

  /* Why there is no picture, once. */
  const unseen = document.getElementById("unseen");
  let announced = false;
  const lost = async (image) => {
    image.classList.add("none");
    if (announced || !unseen) return;
    announced = true;
    try {
      const answer = await fetch(image.src);
      if (answer.ok) return;
      unseen.textContent = `Some images are not shown: ${(await answer.text()).slice(0, 1000)}`;
      unseen.hidden = false;
    } catch {
      /* the server was stopped */
    }
  };
  for (const image of document.querySelectorAll("img.thumb")) {
    if (image.complete && image.naturalWidth === 0) lost(image);
    else image.addEventListener("error", () => lost(image), { once: true });
  }

  /* While runs go on: how far they are, and their newest verdicts. */
  const part = (run, name) => run.querySelector(`[data-part="${name}"]`);
  const show = (state) => {
    for (const run of document.querySelectorAll("[data-run]")) {
      if (run.dataset.run !== state.name) continue;
      const entry = run.closest("[data-entry]") || run;
      const decision = part(run, "decision");
      decision.textContent = `${state.sign} ${state.text}`;
      decision.className = `chip c-${state.css}`;
      part(run, "done").textContent = state.done;
      const progress = part(run, "progress");
      if (progress) {
        progress.max = state.selected || 1;
        progress.value = state.done;
        progress.hidden = !state.going;
      }
      part(run, "tally").replaceChildren(...state.tally.map((each) => el("li", `c-${each.css}`, link(each.url, ...verdict(each), el("b", "", each.n), ` ${each.name}`))));
      const newest = part(entry, "newest");
      newest?.replaceChildren(...state.newest.map((each) => el("li", "", el("span", `verdict c-${each.css}`, ...verdict(each), each.name), " ", each.url ? link(each.url, each.id) : each.id)));
      const news = part(run, "news");
      if (run.dataset.version !== state.version && form) {
        news.querySelector("a").href = location.href;
        news.hidden = false;
      }
    }
  };
  const live = document.querySelector("[data-live]");
  const going = new Set([...document.querySelectorAll("[data-run]")].filter((run) => part(run, "progress")).map((run) => run.dataset.run));
  const look = async () => {
    try {
      const query = new URLSearchParams([...going].map((name) => ["run", name]));
      const answer = await fetch(`/live?${query}`);
      if (answer.ok) {
        for (const state of (await answer.json()).runs) {
          show(state);
          if (!state.going) going.delete(state.name);
        }
      }
    } catch {
      return; // the server was stopped
    }
    if (going.size > 0) setTimeout(look, document.hidden ? 10000 : 2000);
  };
  if (live && going.size > 0) setTimeout(look, 1000);

  /* Keys. */
  const help = document.getElementById("help");
  const keys = document.getElementById("keys");
  keys.hidden = false;
  keys.addEventListener("click", () => help.showModal());
  const entries = [...document.querySelectorAll("[data-entry]")].map((entry) => entry.querySelector("[data-open]")).filter(Boolean);
  const step = (by) => {
    const at = entries.indexOf(document.activeElement);
    const to = entries[at < 0 ? (by > 0 ? 0 : entries.length - 1) : at + by];
    to?.focus();
    to?.closest("[data-entry]").scrollIntoView({ block: "nearest" });
  };
  const follow = (name) => document.querySelector(`a[rel="${name}"]`)?.click();
  const actions = {
    j: () => step(1),
    k: () => step(-1),
    ArrowRight: () => follow("next"),
    ArrowLeft: () => follow("prev"),
    u: () => follow("up"),
    "/": () => document.querySelector('input[type="search"]')?.focus(),
    "?": () => help.showModal(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || event.target.closest?.("input, select, textarea, .scroll")) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
})();
