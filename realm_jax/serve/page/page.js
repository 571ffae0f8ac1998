// The page of `realm serve`. All text from the server goes in as text nodes, never as HTML.

const byId = (id) => document.getElementById(id);
const BLANK = "[MASK]";
let asked = null; // the question on show, asked again when passages change
let saidBefore = null;
let editing = null; // id of the passage in the editor; null for a new one

async function call(method, path, content) {
  const body = content === undefined ? {} : {
    headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
  };
  let response;
  try {
    response = await fetch(path, { method, ...body });
  } catch {
    throw new Error("The server does not answer. Is realm serve still running?");
  }
  const reply = await response.json().catch(() => ({}));
  if (response.ok) return reply;
  const { problem = `error ${response.status}`, ...more } = reply.error ?? {};
  throw new Error([problem, ...Object.entries(more).map(([k, v]) => `${k}: ${v}`)].join("\n"));
}

// Runs a piece of work with its sentence on show, and shows what went wrong where it was asked for.
async function busy(sentence, work, problem = byId("problem")) {
  byId("status").textContent = sentence;
  byId("status").classList.remove("unseen");
  problem.textContent = "";
  document.body.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    byId("status").textContent = "";
    problem.textContent = error.message;
    return undefined;
  } finally {
    document.body.removeAttribute("aria-busy");
  }
}

const percent = (p) => (p >= 0.0005 || p === 0 ? `${(100 * p).toFixed(1)} %` : "under 0.1 %");

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Spans count code points; a JavaScript string counts UTF-16 units.
function withMark(target, text, span) {
  const points = Array.from(text);
  const part = (from, to) => document.createTextNode(points.slice(from, to).join(""));
  if (!span) return target.replaceChildren(text);
  const mark = document.createElement("mark");
  mark.append(part(...span));
  return target.replaceChildren(part(0, span[0]), mark, part(span[1]));
}

function headed(target, passage) {
  target.textContent = passage.title || "(no title)";
  if (passage.edit) target.append(element("span", passage.edit, "badge"));
}

function showPassage(passage) {
  const item = byId("passage").content.cloneNode(true).firstElementChild;
  headed(item.querySelector("h3"), passage);
  item.querySelector(".number").textContent = `p(z|x) ${percent(passage.p_z)}`;
  item.querySelector(".bar").style.width = `${100 * passage.p_z}%`;
  withMark(item.querySelector(".text"), passage.text, passage.span);
  const [edit, remove] = item.querySelectorAll("button");
  if (passage.id < 0) {
    item.querySelector(".row").remove();
  } else {
    for (const button of [edit, remove])
      button.setAttribute("aria-label", `${button.textContent} passage ${passage.title}`);
    edit.onclick = () => openEditor(passage);
    remove.onclick = () => change("DELETE", `/api/passages?id=${passage.id}`);
  }
  return item;
}

function show(reply) {
  const filled = reply.text !== undefined;
  const unaided = filled
    ? { answer: reply.answer_without_retrieval, probability: null } : reply.closed_book;
  byId("answer").textContent = reply.answer || "(nothing)";
  byId("probability").textContent = `probability ${percent(reply.probability)}`;
  byId("unaided").textContent = unaided ? unaided.answer : "(the question is too long for that)";
  let aside = unaided && unaided.probability !== null ? `probability ${percent(unaided.probability)}` : "";
  if (filled) aside = `gives “${reply.answer}” a probability of ${percent(reply.without_retrieval)}`;
  byId("unaided-probability").textContent = aside;
  const changed = reply.edits_version ? `, with version ${reply.edits_version} of the changes below` : "";
  byId("read").textContent = `found by the index of step ${reply.index_step}${changed}`;
  const best = [...reply.passages].sort((one, other) => other.p_z - one.p_z);
  byId("passages").replaceChildren(...best.map(showPassage));
  byId("result").hidden = false;
  const differs = saidBefore !== null && saidBefore !== reply.answer;
  byId("before").hidden = !differs;
  byId("before").textContent = differs ? `before the change: ${saidBefore}` : "";
  byId("status").textContent = `Answer: ${reply.answer}, ${byId("probability").textContent}.`;
  byId("status").classList.add("unseen"); // it is seen in the card below; this is read aloud
}

async function answer({ again = false } = {}) {
  const text = again ? asked : byId("question").value.trim();
  if (!text) return;
  const k = byId("k").value ? Number(byId("k").value) : undefined;
  const reply = await busy("Reading …", () => (text.includes(BLANK)
    ? call("POST", "/api/fill", { text }) : call("POST", "/api/ask", { question: text, k })));
  if (!reply) return;
  saidBefore = again ? saidBefore ?? byId("answer").textContent : null;
  asked = text;
  show(reply);
  if (!again) history.replaceState(null, "", `?q=${encodeURIComponent(text)}`);
}

async function change(method, path, content, problem) {
  const done = await busy("Changing …", () => call(method, path, content), problem);
  if (!done) return false;
  saidBefore = null;
  if (asked) await answer({ again: true });
  else byId("status").textContent = "Changed.";
  await showChanges();
  // The button that was pressed may be gone, and the focus with it.
  if (document.activeElement === document.body)
    byId(byId("result").hidden ? "add" : "answer-title").focus();
  return true;
}

async function showChanges() {
  const { passages } = await call("GET", "/api/passages");
  byId("undo-all").hidden = !passages.length;
  byId("edits").replaceChildren(...passages.map((passage) => {
    const item = element("li", "", "card");
    const title = element("h3", "");
    headed(title, passage);
    const undo = element("button", "Undo");
    undo.type = "button";
    undo.setAttribute("aria-label", `Undo: ${passage.edit} ${passage.title}`);
    undo.onclick = () => change("DELETE", `/api/edits?id=${passage.id}`);
    const row = element("div", "", "row");
    row.append(undo);
    item.append(title, element("p", passage.text, "text"), row);
    return item;
  }));
}

function openEditor(passage) {
  editing = passage?.id ?? null;
  byId("editor-title").textContent = passage ? "Edit the passage" : "Add a passage";
  byId("title").value = passage?.title ?? "";
  byId("text").value = passage?.text ?? "";
  byId("editor-problem").textContent = "";
  byId("editor").showModal();
}

byId("ask").onsubmit = (event) => { event.preventDefault(); answer(); };
byId("question").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("ask").requestSubmit();
  }
};
byId("blank").onclick = () => {
  const box = byId("question");
  box.setRangeText(BLANK, box.selectionStart, box.selectionEnd, "end");
  box.focus();
};
byId("edit").onsubmit = async (event) => {
  event.preventDefault();
  const content = { title: byId("title").value, text: byId("text").value };
  const [method, body] = editing === null ? ["POST", content] : ["PUT", { id: editing, ...content }];
  if (await change(method, "/api/passages", body, byId("editor-problem"))) byId("editor").close();
};
byId("cancel").onclick = () => byId("editor").close();
byId("add").onclick = () => openEditor();
byId("undo-all").onclick = () => change("DELETE", "/api/edits");

await busy("", async () => {
  const health = await call("GET", "/api/health");
  const only = health.answers_questions ? "" : " · this run fills blanks only";
  byId("about").textContent = `${health.passages.toLocaleString("en")} passages · `
    + `trained ${health.step} steps · index of step ${health.index_step}${only}`;
  byId("k").value = health.k;
  await showChanges();
});
const given = new URLSearchParams(location.search).get("q");
if (given) {
  byId("question").value = given;
  await answer();
}
