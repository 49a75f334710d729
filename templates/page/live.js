// Keeps the page current where it stands: what is open stays open, and what has the focus keeps it. When the server is
// gone, the page says since when, and shows what it showed last.
const every = 5000;
let heard = new Date();

function take(fresh) {
  for (const part of document.querySelectorAll("details[open][id]"))
    fresh.getElementById(part.id)?.setAttribute("open", "");
  const focus = document.activeElement?.closest("[id]")?.id;
  const [before, after] = [document, fresh].map(page => page.getElementById("main"));
  if (!after || before.innerHTML === after.innerHTML)
    return;
  const scrolled = [...before.querySelectorAll(".scroll")].map(table => table.scrollLeft);
  const place = [...before.querySelectorAll("a, summary, .scroll")].indexOf(document.activeElement);
  before.innerHTML = after.innerHTML;
  before.querySelectorAll(".scroll").forEach((table, i) => { table.scrollLeft = scrolled[i] ?? 0; });
  if (focus)
    before.querySelectorAll("a, summary, .scroll")[place]?.focus({ preventScroll: true });
}

async function look() {
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every) });
    if (!answer.ok)
      throw new Error(answer.statusText);
    take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    heard = new Date();
  } catch {
    const since = document.createElement("strong");
    since.className = "outage";
    since.textContent = `This page has not been updated since ${heard.toISOString().slice(0, 19).replace("T", " ")} UTC: ` +
      "its server does not answer.";
    document.getElementById("condition")?.replaceChildren(since);
  }
  setTimeout(look, every);
}

setTimeout(look, every);
