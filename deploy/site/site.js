// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const root = document.body.dataset.root;
  const here = location.pathname;
  const menu = document.getElementById("menu");
  menu.open = matchMedia("(min-width: 54rem)").matches;
  for (const a of menu.querySelectorAll("a")) {
    if (a.pathname === here) a.setAttribute("aria-current", "page");
  }
  menu.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });

  const box = document.getElementById("search");
  const results = document.getElementById("results");

  // score counts where the words are: the title weighs most, then headings, then the text. All words must be there.
  function score(page, words) {
    let total = 0, best = -1;
    for (const word of words) {
      let n = 0;
      if (page.title.toLowerCase().includes(word)) n += 20;
      page.headings.forEach((h, i) => {
        if (h.toLowerCase().includes(word)) { n += 8; if (best < 0) best = i; }
      });
      n += Math.min(5, page.lower.split(word).length - 1);
      if (n === 0) return null;
      total += n;
    }
    return { total, best };
  }

  for (const p of searchIndex) p.lower = p.text.toLowerCase();

  function search() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.replaceChildren();
    results.hidden = words.length === 0;
    if (results.hidden) return;
    const found = searchIndex.map((p) => ({ p, s: score(p, words) })).filter((f) => f.s)
      .sort((a, b) => b.s.total - a.s.total).slice(0, 12);
    for (const { p, s } of found) {
      const a = document.createElement("a");
      a.href = root + p.href + (s.best > 0 ? "#" + p.ids[s.best] : "");
      a.textContent = p.title + (s.best > 0 ? " · " + p.headings[s.best] : "");
      const at = p.lower.indexOf(words[0]);
      const small = document.createElement("small");
      small.textContent = at < 0 ? "" : "… " + p.text.slice(Math.max(0, at - 40), at + 80);
      a.append(small);
      const li = document.createElement("li");
      li.append(a);
      results.append(li);
    }
    if (found.length === 0) {
      const li = document.createElement("li");
      li.textContent = "No page has all of these words.";
      results.append(li);
    }
  }
  box.addEventListener("input", search);
  box.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { box.value = ""; search(); }
    if (e.key === "Enter") results.querySelector("a")?.click();
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && document.activeElement !== box) { e.preventDefault(); box.focus(); }
  });
})();
