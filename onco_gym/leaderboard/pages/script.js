// Pages can be read without this. It remembers light or dark, sorts and filters tables, and moves through journeys.
"use strict";
const root = document.documentElement;

function theme() {
  const button = document.querySelector(".theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* the choice lasts for this page */ }
  });
}

function standings(table) {
  const body = table.tBodies[0], form = document.querySelector(".filter"), count = form.querySelector("output");
  const pages = Number(table.dataset.pages);
  if (pages > 1 && table.dataset.static !== "yes") return; // the server sorts and filters
  root.classList.add("scripted");
  let rows = [...body.rows].filter((row) => row.dataset.kind), whole = pages === 1;

  async function everything() {
    if (whole) return;
    whole = true;
    for (let page = 1; page <= pages; page++) {
      const answer = await fetch(page === 1 ? "index.html" : `page-${page}.html`);
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      rows = rows.concat([...found.querySelectorAll(".standings tbody tr[data-kind]")].map((row) => document.adoptNode(row)));
    }
    const seen = new Set();
    rows = rows.filter((row) => { const link = row.querySelector(".who a").getAttribute("href"); return !seen.has(link) && seen.add(link); });
    document.querySelector("main .pager")?.remove();
  }

  function filter() {
    const words = form.text.value.toLowerCase(), kind = form.kind.value;
    for (const row of rows) row.hidden = (kind && row.dataset.kind !== kind) || !row.cells[0].querySelector(".who").textContent.toLowerCase().includes(words);
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = `${left} ${left === 1 ? "entry" : "entries"}`;
    body.replaceChildren(...rows);
  }

  function sort(head, descending) {
    const place = head.cellIndex;
    const value = (row) => { const text = row.cells[place].dataset.v; return text === undefined || !isFinite(text) ? NaN : Number(text); };
    rows = rows.map((row) => [row, value(row)]).sort(([, a], [, b]) => {
      if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b);
      return descending ? b - a : a - b;
    }).map(([row]) => row);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    filter();
  }

  table.tHead.addEventListener("click", async (event) => {
    const head = event.target.closest("th[data-key]");
    if (!head || !event.target.closest("a")) return;
    event.preventDefault();
    await everything();
    const now = head.getAttribute("aria-sort"), best = head.dataset.better === "higher" ? "descending" : "ascending";
    sort(head, (now ? (now === "descending" ? "ascending" : "descending") : best) === "descending");
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", async () => { await everything(); filter(); });
}

function explorer(part) {
  const chart = part.querySelector(".journey"), bar = part.querySelector(".scrubber"), range = bar.querySelector("input");
  const said = bar.querySelector("output"), cursor = chart.querySelector(".cursor"), data = chart.dataset;
  const tracks = [...part.querySelectorAll(".track")].map((track) => [...track.querySelectorAll(".decision")]);
  const names = [...part.querySelectorAll(".track h2")].map((name) => name.textContent), given = bar.querySelector(".now-given");
  const week = (decision) => Number(decision.dataset.week);
  const weeks = [...new Set(tracks.flat().map(week))].sort((a, b) => a - b);
  const scale = (Number(data.right) - Number(data.left)) / Number(data.weeks);

  function show(place, chosen, quiet) {
    const at = Math.min(Math.max(place, 0), weeks.length - 1);
    range.value = at;
    cursor.style.transform = `translateX(${weeks[at] * scale}px)`;
    const now = tracks.map((track) => track.filter((one) => week(one) <= weeks[at]).at(-1));
    for (const one of tracks.flat()) one.classList.toggle("now", now.includes(one));
    given.replaceChildren(...now.map((one, place) => {
      const item = document.createElement("li"), name = document.createElement("span");
      const regimen = one.querySelector(".regimen").cloneNode(true);
      name.textContent = names[place];
      regimen.lastChild.textContent = regimen.dataset.label;
      item.append(name, regimen);
      return item;
    }));
    said.textContent = `Week ${Math.round(weeks[at])}, month ${Math.round(weeks[at] / 4.348)}`;
    range.setAttribute("aria-valuetext", said.textContent);
    const reached = chosen || now.find((one) => one && week(one) === weeks[at]);
    if (reached && !quiet) history.replaceState(null, "", `#${reached.id}`);
  }

  function go(hash) {
    const one = hash.length > 1 && document.getElementById(hash.slice(1));
    if (!one || !one.matches(".decision")) return false;
    show(weeks.indexOf(week(one)), one);
    return true;
  }

  part.classList.add("scripted");
  bar.hidden = false;
  range.max = weeks.length - 1;
  range.addEventListener("input", () => show(Number(range.value)));
  bar.addEventListener("click", (event) => { if (event.target.dataset.by) show(Number(range.value) + Number(event.target.dataset.by)); });
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea, .scroll")) return;
    event.preventDefault();
    show(Number(range.value) + by);
  });
  part.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && go(link.getAttribute("href"))) event.preventDefault();
  });
  chart.addEventListener("click", (event) => {
    if (event.target.closest("a")) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    const wanted = (at.x - Number(data.left)) / scale;
    show(weeks.reduce((best, one, place) => (Math.abs(one - wanted) < Math.abs(weeks[best] - wanted) ? place : best), 0));
  });
  addEventListener("hashchange", () => go(location.hash));
  if (go(location.hash)) addEventListener("load", () => part.scrollIntoView()); // after the browser has gone to the decision
  else show(0, null, true);
}

try { const kept = localStorage.getItem("theme"); if (kept === "light" || kept === "dark") root.dataset.theme = kept; } catch { /* nothing is kept */ }
theme();
document.querySelectorAll(".standings").forEach(standings);
document.querySelectorAll(".explorer").forEach(explorer);
