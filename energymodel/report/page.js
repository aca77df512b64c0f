"use strict";
// The page is complete without this script: it adds a switch of the theme, copies of tables, and quick tooltips.
(() => {
  const root = document.documentElement;
  const button = (words, name, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = name;
    made.textContent = words;
    made.addEventListener("click", () => act(made));
    return made;
  };

  const isDark = () => root.classList.contains("em-dark") ||
    (!root.classList.contains("em-light") && matchMedia("(prefers-color-scheme: dark)").matches);
  const theme = button("", "em-theme", () => {
    const dark = !isDark();
    root.classList.toggle("em-dark", dark);
    root.classList.toggle("em-light", !dark);
    name();
  });
  const name = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  name();
  document.querySelector("header").append(theme);

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = (table) => [...table.rows]
    .map((row) => [...row.cells].map((cell) => quoted(cell.dataset.csv ?? cell.textContent)).join(","))
    .join("\n") + "\n";
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const table of document.querySelectorAll(".em-data table")) {
    table.parentElement.before(button("Copy as CSV", "em-copy", async (made) => {
      await copy(csv(table));
      made.textContent = "Copied";
      setTimeout(() => { made.textContent = "Copy as CSV"; }, 1500);
    }));
  }

  // Marks hold their words in <title>, which browsers show late and small.
  const tip = document.createElement("div");
  tip.className = "em-tip";
  tip.hidden = true;
  document.body.append(tip);
  const words = new WeakMap();
  for (const title of document.querySelectorAll("svg title")) {
    if (title.parentElement.tagName !== "svg") {
      words.set(title.parentElement, title.textContent);
      title.remove();
    }
  }
  addEventListener("pointermove", (event) => {
    const text = words.get(event.target);
    tip.hidden = text === undefined;
    if (tip.hidden) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16}px`;
  });
})();
