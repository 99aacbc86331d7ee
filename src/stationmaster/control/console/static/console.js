// Keeps a page up to date: hears that something changed, fetches the page again, and puts in what differs.
// A part in which somebody types, or has opened a form, is left alone. Without this file a reload does the same.
const body = document.body;
const sign = document.getElementById("live");
let busy = false;
let again = false;

function occupied(part) {
  const active = document.activeElement;
  if (active && active !== body && part.contains(active) && active.matches("input, textarea, select")) return true;
  return [...part.querySelectorAll("details.act[open]")].length > 0;
}

function keepOpen(old, fresh) {
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
  for (const each of fresh.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = true;
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(body.dataset.address, { headers: { "X-Live": "1" }, redirect: "error" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const next = fresh.getElementById(part.id);
      if (!next) { if (!occupied(part)) part.replaceChildren(); continue; }
      if (next.innerHTML === part.innerHTML || occupied(part)) continue;
      keepOpen(part, next);
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceChildren(...next.childNodes);
      if (focused) document.getElementById(focused)?.focus();
    }
    document.title = fresh.title;
  } catch { /* The next change, or a reload, tries again. */ } finally {
    busy = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  }
}

function listen() {
  const query = new URLSearchParams({ since: body.dataset.pulse, watch: body.dataset.watch });
  const source = new EventSource(`/console/events?${query}`);
  source.addEventListener("changed", refresh);
  source.addEventListener("open", () => { sign.hidden = false; sign.textContent = sign.dataset.on; });
  source.addEventListener("error", () => { sign.textContent = sign.dataset.off; });
}

document.addEventListener("submit", (event) => {
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "1";
});
window.addEventListener("pageshow", () => { for (const form of document.forms) delete form.dataset.sent; });
if (sign && body.dataset.pulse) listen();
