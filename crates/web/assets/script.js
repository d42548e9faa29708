// Enhances the pages. Everything works without it.
"use strict";

/** Creates an element with properties and children. */
function element(name, properties, ...children) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

// The theme: that of the system, light or dark. It is stored in a cookie, so that the server sends pages with it.
const THEMES = ["system", "light", "dark"];

function addThemeSwitch() {
  const place = document.querySelector(".who");
  if (!place) return;
  const root = document.documentElement;
  const button = element("button", { type: "button", className: "plain" });
  const show = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    const theme = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
    const age = theme === "system" ? 0 : 365 * 24 * 60 * 60;
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `gable_theme=${theme}; path=/; max-age=${age}; samesite=lax${secure}`;
    show(theme);
  });
  show(root.dataset.theme ?? "system");
  place.prepend(button);
}

// Buttons that copy clone URLs and code. Browsers offer the clipboard over TLS and on localhost only.
function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const code of document.querySelectorAll(".clone code, .commands > code, .text pre > code")) {
    const button = element("button", { type: "button", className: "copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent.replace(/\n$/, ""));
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    const block = code.closest("pre");
    if (block) {
      const frame = element("div", { className: "copyable" });
      block.replaceWith(frame);
      frame.append(block, button);
    } else {
      code.after(" ", button);
    }
  }
}

// The preview of a text below its field, without leaving the page. If it fails, the form is submitted as usual.
async function showPreview(event) {
  event.preventDefault();
  const button = event.currentTarget;
  const { form } = button;
  const fields = new FormData(form, button);
  fields.delete("file");
  try {
    const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(fields) });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const preview = document.importNode(page.getElementById("preview"), true);
    document.getElementById("preview")?.remove();
    form.querySelector("textarea").after(preview);
    preview.scrollIntoView({ block: "nearest" });
  } catch {
    form.requestSubmit(button);
  }
}

// Keyboard shortcuts.
const SHORTCUTS = [
  ["/", "Search"],
  ["?", "Show or hide this list"],
  ["Ctrl + Enter", "Submit the form with the text that is being written"],
];

function toggleShortcuts() {
  let list = document.getElementById("shortcuts");
  if (!list) {
    const rows = SHORTCUTS.map(([keys, text]) =>
      element("div", {}, element("dt", {}, element("kbd", { textContent: keys })), element("dd", { textContent: text })),
    );
    const title = element("p", { className: "strong", textContent: "Keyboard shortcuts" });
    list = element("div", { id: "shortcuts", popover: "auto" }, title, element("dl", {}, ...rows));
    document.body.append(list);
  }
  list.togglePopover?.();
}

function onKey(event) {
  const { target } = event;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && target.matches?.("textarea")) {
    target.form?.requestSubmit();
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest?.("input, textarea, select, [contenteditable]")) return;
  if (event.key === "/") {
    document.querySelector(".search input")?.focus();
    event.preventDefault();
  } else if (event.key === "?") {
    toggleShortcuts();
    event.preventDefault();
  }
}

// The log of a running job. The page asks for the part after the one that it has, and is loaded anew when the status of
// the job changes.
const MAX_LOG_LINES = 20000;
const MIN_DELAY = 2000;
const MAX_DELAY = 10000;

/** Appends a part of a log; a section that is still open continues in it. */
function appendPart(log, part) {
  for (const node of [...part.children]) {
    const open = log.lastElementChild;
    if ("continued" in node.dataset && open?.matches("details")) appendPart(open, node);
    else log.append(node);
  }
}

function followLog(log) {
  let { state } = log.dataset;
  let delay = MIN_DELAY;
  const wait = (time) => setTimeout(poll, time);

  async function poll() {
    if (document.hidden) {
      document.addEventListener("visibilitychange", poll, { once: true });
      return;
    }
    let part;
    try {
      const response = await fetch(`${log.dataset.live}?state=${encodeURIComponent(state)}`);
      if (response.status >= 400 && response.status < 500 && response.status !== 429) return;
      if (!response.ok) throw new Error(response.statusText);
      part = new DOMParser().parseFromString(await response.text(), "text/html").body.firstElementChild;
    } catch {
      delay = MAX_DELAY;
      wait(delay);
      return;
    }
    if (part.dataset.restarted === "true" || part.dataset.status !== log.dataset.status) {
      location.reload();
      return;
    }
    const isNew = part.dataset.state !== state || part.textContent !== (log.querySelector("[data-partial]")?.textContent ?? "");
    if (isNew) {
      const { documentElement } = document;
      const isAtEnd = innerHeight + scrollY >= documentElement.scrollHeight - 80;
      log.querySelector("[data-partial]")?.remove();
      appendPart(log, part);
      document.getElementById("waiting")?.remove();
      if (isAtEnd) scrollTo(0, documentElement.scrollHeight);
    }
    state = part.dataset.state;
    if (log.querySelectorAll(".l").length > MAX_LOG_LINES) {
      log.after(element("p", { className: "note", textContent: "The log is long. Reload the page to see its end." }));
      return;
    }
    delay = isNew ? MIN_DELAY : Math.min(delay * 1.5, MAX_DELAY);
    wait(part.dataset.more === "true" ? 0 : delay);
  }

  wait(MIN_DELAY);
}

// Cards of the board can be dragged to another column; the buttons on them do the same.
function addDragging(form) {
  let dragged;
  for (const card of document.querySelectorAll("[data-card]")) {
    card.draggable = true;
    card.addEventListener("dragstart", ({ dataTransfer }) => {
      dragged = card;
      dataTransfer.effectAllowed = "move";
      dataTransfer.setData("text/plain", card.querySelector("a").href);
    });
    card.addEventListener("dragend", () => (dragged = undefined));
  }
  for (const column of document.querySelectorAll("[data-column]")) {
    const accepts = () => dragged && !column.contains(dragged);
    const mark = (isTarget) => column.classList.toggle("target", isTarget);
    column.addEventListener("dragover", (event) => {
      if (!accepts()) return;
      event.preventDefault();
      mark(true);
    });
    column.addEventListener("dragleave", ({ relatedTarget }) => column.contains(relatedTarget) || mark(false));
    column.addEventListener("drop", (event) => {
      mark(false);
      if (!accepts()) return;
      event.preventDefault();
      const value = `${dragged.dataset.card}.${column.dataset.column}`;
      form.append(element("input", { type: "hidden", name: "move", value }));
      form.submit();
    });
  }
}

addThemeSwitch();
addCopyButtons();
for (const button of document.querySelectorAll("button[name=preview]")) button.addEventListener("click", showPreview);
document.addEventListener("keydown", onKey);
const cards = document.getElementById("cards");
if (cards) addDragging(cards);
const log = document.querySelector("[data-live]");
if (log) followLog(log);
