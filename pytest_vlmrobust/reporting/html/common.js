"use strict";
/* What every page does. */
(() => {
  /* Light, dark, or as the system has it. */
  const themes = ["auto", "light", "dark"];
  const theme = document.getElementById("theme");
  const stored = () => {
    try {
      return localStorage.getItem("vlmrobust-theme");
    } catch {
      return null; // some browsers keep nothing for files
    }
  };
  const dress = (name) => {
    document.documentElement.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
  };
  theme.hidden = false;
  dress(themes.includes(stored()) ? stored() : "auto");
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    dress(next);
    try {
      localStorage.setItem("vlmrobust-theme", next);
    } catch {
      /* it then lasts as long as the page */
    }
  });

  /* A part of the page that an address names is unfolded. */
  const unfold = () => {
    const part = document.getElementById(location.hash.slice(1));
    if (part instanceof HTMLDetailsElement) part.open = true;
  };
  addEventListener("popstate", unfold);
  addEventListener("hashchange", unfold);
  unfold();

  /* Paper cannot be unfolded: what was folded is printed, and folded again. */
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
    folded = [];
  });
})();
