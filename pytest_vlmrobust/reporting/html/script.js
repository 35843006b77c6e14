/* What comes from models and datasets is only ever set as text. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dialog = document.getElementById("drill");
  const byName = new Map(data.tests.map((test, index) => [test.name, index]));
  let opener = null;

  const put = (node, children) => {
    for (const child of children.flat(3)) {
      if (child !== null && child !== undefined && child !== false && child !== "") node.append(child);
    }
    return node;
  };
  const el = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return put(node, children);
  };
  const number = (value) => (typeof value === "number" ? value.toFixed(3).replace("-", "−") : "undefined");
  const hidden = (text) => el("span", { class: "hidden" }, text);
  const verdict = (outcome) => {
    const mark = data.marks[outcome];
    return el("span", { class: `verdict c-${mark.css}`, title: mark.meaning }, el("span", { "aria-hidden": "true" }, mark.sign), ` ${outcome === "MEASURED" ? "not judged" : outcome}`);
  };
  const rightward = new Set(["value", "interval", "bound", "n"]);
  const labelled = (cell, name) => {
    if (name) cell.dataset.name = name; // said before the cell where a narrow screen has no columns
    return cell;
  };
  const table = (name, heads, rows) =>
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
      el("table", { class: "stack" }, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", class: rightward.has(head) ? "n" : "" }, head)))),
        el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, index) => labelled(cell instanceof HTMLTableCellElement ? cell : el("td", {}, cell), index > 0 && heads[index])))))));
  const numeric = (text) => el("td", { class: "n" }, text);

  /* Thumbnails: each is held once, and becomes a picture where it is looked at. */
  const picture = (file, caption) => {
    const held = data.pictures[file];
    if (held === undefined) return el("span", { class: "thumb none" }, `${caption}: no thumbnail`);
    return el("img", { src: `data:image/webp;base64,${held}`, alt: caption, class: "thumb" });
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      entry.target.replaceWith(picture(entry.target.dataset.file, entry.target.textContent));
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll(".thumb[data-file]").forEach((node) => watcher.observe(node));
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".thumb[data-file]").forEach((node) => node.replaceWith(picture(node.dataset.file, node.textContent)));
  });

  const framed = (image) => {
    const sign = { right: "✓", wrong: "✕" }[image.frame] || "";
    return el("figure", { class: `view ${image.frame ? `framed ${image.frame}` : ""}` }, picture(image.file, image.caption || ""),
      el("figcaption", {}, sign && el("span", { class: "answer", "aria-hidden": "true" }, sign), sign && hidden(image.frame), ` ${image.caption || ""}`));
  };
  const scored = (reply) => {
    if (reply.state === "error") return ["!", " no score: the inference failed"];
    if (reply.state === "unparsed") return ["?", " unparsed, counts as wrong"];
    return reply.value >= 0.5 ? ["✓", ` ${number(reply.value)}`] : ["✕", ` ${number(reply.value)}`];
  };
  const kinds = {
    newly_wrong: "right on the clean image, wrong here",
    whole_only: "answered from the whole image only",
    patch_only: "answered from a patch only",
  };
  const example = (shown) => {
    const entry = { ...shown, ...data.asked[shown.asked] };
    const options = Object.entries(entry.options || {});
    const about = [kinds[entry.kind] || entry.kind, entry.category].filter(Boolean).join(", ");
    return el("article", { class: "example" },
      el("p", { class: "question", dir: "auto" }, entry.question || ""),
      options.length > 0 && el("p", { class: "options" }, options.map(([letter, text]) => [
        el("span", letter === entry.target ? { class: "target" } : {}, el("b", {}, letter), ` ${text}`), " "])),
      el("p", { class: "quiet" }, "target: ", el("b", {}, entry.target || "none"), `; ${about}; sample ${entry.sample}`),
      el("div", { class: "strip" }, (entry.pictures || []).map(framed)),
      table(`answers, sample ${entry.sample}`, ["seen", "the model wrote", "read as", "rule that fired", "score"], (entry.replies || []).map((reply) => {
        const [sign, words] = scored(reply);
        return [reply.about || "", el("td", { class: "said", dir: "auto" }, reply.text || "(nothing)"), reply.answer || "(nothing)", reply.rule || "none",
          el("td", {}, sign, words)];
      })));
  };

  const measures = (test) => table("measures", ["verdict", "metric", "value", "interval", "bound", "n", "rule", "about"], test.measures.map((measure) => [
    verdict(measure.outcome), measure.category ? `${measure.metric} (${measure.category})` : measure.metric, numeric(measure.value), numeric(measure.interval),
    numeric(measure.bound), numeric(String(measure.n || 0)), [measure.rule || "", measure.waiver ? `, waiver ${measure.waiver}` : ""].join(""),
    { population: "all such questions", dataset: "these samples" }[measure.target] || ""]));
  const reasons = (test) => {
    const said = [...new Set([test.not_asked, test.reason, ...test.measures.map((measure) => measure.reason)].filter(Boolean))];
    return said.length > 0 && el("ul", { class: "reasons" }, said.map((line) => el("li", {}, line)));
  };
  const facts = (test) => {
    const rows = [["model", test.model], ["dataset", test.dataset], ["setting", test.setting], ["family", test.family], ["level", test.level],
      ["task", test.task], ["split", test.split], ["answers scored", test.n], ["asked", test.n_requested], ["unparsed", test.n_unparsed],
      ["failed", test.n_errors], ["the model received", test.received]];
    return el("dl", { class: "facts" }, rows.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
  };
  const strata = (test) => {
    const categories = Object.entries(test.categories || {});
    return categories.length > 0 && [el("h3", {}, "Score by category"), el("dl", { class: "facts" }, categories.map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, number(value)))))];
  };
  const spatial = (test) => {
    const side = Math.sqrt((test.positions || []).length);
    if (!side || !Number.isInteger(side)) return null;
    const rows = Array.from({ length: side }, (_, row) => test.positions.slice(row * side, (row + 1) * side));
    return [el("h3", {}, "Share of right answers by position"), el("table", { class: "spatial" }, el("tbody", {}, rows.map((row) =>
      el("tr", {}, row.map((value) => el("td", {}, typeof value === "number" ? `${(100 * value).toFixed(1)} %` : "undefined"))))))];
  };
  const copy = (text) => {
    const button = el("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.previousElementSibling);
        button.textContent = "Selected";
      }
    });
    return button;
  };

  const step = (index, by, words) => {
    const to = index + by;
    const button = el("button", { type: "button", "aria-label": words }, by < 0 ? "‹" : "›");
    if (to < 0 || to >= data.tests.length) button.disabled = true;
    button.addEventListener("click", () => go(data.tests[to].name, true));
    return button;
  };
  const content = (test, index) => {
    const close = el("button", { type: "button", "aria-label": "Close" }, "Close");
    close.addEventListener("click", () => dialog.close());
    return [
      el("header", {}, el("h2", { id: "drill-title", tabindex: "-1" }, verdict(test.outcome), " ", test.id),
        el("div", { class: "steps" }, step(index, -1, "Test before, worse"), step(index, 1, "Next test"), close)),
      el("div", { class: "body" }, reasons(test), facts(test),
        test.measures.length > 0 && [el("h3", {}, "Measures"), measures(test)], strata(test), spatial(test),
        (test.notes || []).length > 0 && [el("h3", {}, "Notes"), el("ul", {}, test.notes.map((note) => el("li", {}, note)))],
        (test.examples || []).length > 0 && [el("h3", {}, "Samples"), el("div", { class: "examples" }, test.examples.map(example))],
        test.elsewhere > 0 && el("p", { class: "quiet" }, `${test.elsewhere} more samples of this test stand in results.json`),
        test.lost.length > 0 && el("p", { class: "quiet" }, `Newly wrong, first ones: ${test.lost.join(", ")}`),
        test.command && [el("h3", {}, "Run it again"), el("div", { class: "again" }, el("pre", { class: "command" }, test.command), copy(test.command))]),
    ];
  };

  /* #cell=NAME opens a test: links work, and so do going back and forth. */
  const linked = () => {
    if (!location.hash.startsWith("#cell=")) return null;
    try {
      return decodeURIComponent(location.hash.slice(6));
    } catch {
      return null;
    }
  };
  const show = () => {
    const index = byName.get(linked());
    if (index === undefined) {
      if (dialog.open) dialog.close();
      return;
    }
    const test = data.tests[index];
    dialog.replaceChildren();
    put(dialog, content(test, index));
    if (!dialog.open) {
      opener = document.activeElement;
      dialog.showModal();
      document.documentElement.classList.add("covered");
    }
    dialog.querySelector(".body").scrollTop = 0;
    document.getElementById("drill-title").focus();
  };
  const go = (name, replace) => {
    const address = `#cell=${encodeURIComponent(name)}`;
    history[replace ? "replaceState" : "pushState"](null, "", address);
    show();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#cell="]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(decodeURIComponent(link.getAttribute("href").slice(6)), false);
  });
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest?.('a[role="button"]');
    if (event.key === " " && link) {
      event.preventDefault();
      link.click();
    }
    if (!dialog.open || !["ArrowLeft", "ArrowRight"].includes(event.key) || event.target.closest(".scroll, input")) return;
    const at = byName.get(linked()) + (event.key === "ArrowLeft" ? -1 : 1);
    if (data.tests[at]) go(data.tests[at].name, true);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    document.documentElement.classList.remove("covered");
    if (linked() !== null) history.replaceState(null, "", location.pathname + location.search);
    if (opener && opener.isConnected) opener.focus();
  });
  addEventListener("popstate", show);
  addEventListener("hashchange", show);

  /* The table of all tests, narrowed down. */
  const filter = document.getElementById("filter");
  const rows = [...document.querySelectorAll("#all tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
  document.querySelector(".filter").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      kept += row.hidden ? 0 : 1;
    }
    document.getElementById("filtered").textContent = words.length > 0 ? `${kept} of ${rows.length}` : "";
  });

  /* Paper has no drill-down: samples of the worst tests are printed at the end. */
  const printed = document.getElementById("samples");
  const emptied = () => printed.querySelectorAll(":scope > :not(h2)").forEach((node) => node.remove());
  addEventListener("beforeprint", () => {
    emptied();
    const having = data.tests.filter((test) => (test.examples || []).length > 0);
    const shown = having.slice(0, data.printed.tests);
    const most = data.printed.samples;
    put(printed, shown.flatMap((test) => [
      el("h3", {}, verdict(test.outcome), " ", test.id),
      el("div", { class: "examples" }, test.examples.slice(0, most).map(example)),
      test.examples.length > most && el("p", { class: "quiet" }, `${test.examples.length - most} more on the page on the screen`),
    ]));
    put(printed, [having.length > shown.length &&
      el("p", { class: "note" }, `Samples of ${having.length - shown.length} more tests are on the page on the screen.`),
      having.length === 0 && el("p", { class: "quiet" }, "The records hold no samples.")]);
  });
  addEventListener("afterprint", emptied);

  show();
})();
