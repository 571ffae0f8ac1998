// The page of `realm serve`. Text from the server is inserted as text nodes, never as HTML.

const byId = (id) => document.getElementById(id);
const BLANK = "[MASK]";
let asked = null; // the question that is shown; asked again when passages change
let asking = null; // the question that is sent and not answered yet
let sent = 0; // number of the last question; replies to earlier ones are not shown
let previousAnswer = null; // its answer before the last change
let readOnly = false; // whether the server refuses changes
let editing = null; // id of the passage in the editor; null for a new passage

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

// Shows `message` while `work` runs; shows its error, if any, in the element `problem`.
async function busy(message, work, problem = byId("problem")) {
  byId("status").textContent = message;
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
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Spans are in code points; JavaScript strings are indexed in UTF-16 units.
function withMark(target, text, span) {
  const points = Array.from(text);
  const part = (from, to) => document.createTextNode(points.slice(from, to).join(""));
  if (!span) return target.replaceChildren(text);
  const mark = document.createElement("mark");
  mark.append(part(...span));
  return target.replaceChildren(part(0, span[0]), mark, part(span[1]));
}

function showTitle(target, passage) {
  target.textContent = passage.id < 0 ? "No passage" : passage.title || "Untitled passage";
  if (passage.document_id) target.append(element("span", passage.document_id, "quiet"));
  if (passage.edit) target.append(element("span", passage.edit, "badge"));
}

function showPassage(passage) {
  const item = byId("passage").content.cloneNode(true).firstElementChild;
  showTitle(item.querySelector("h3"), passage);
  item.querySelector(".number").textContent = `weight ${percent(passage.p_z)}`;
  item.querySelector(".bar").style.width = `${100 * passage.p_z}%`;
  const text = item.querySelector(".text");
  withMark(text, passage.text, passage.span);
  text.hidden = !passage.text;
  const [edit, remove] = item.querySelectorAll("button");
  if (passage.id < 0 || readOnly) {
    item.querySelector(".row").remove();
  } else {
    for (const button of [edit, remove])
      button.setAttribute("aria-label", `${button.textContent} passage ${passage.title || passage.id}`);
    edit.onclick = () => openEditor(passage);
    remove.onclick = () => change("DELETE", `/api/passages?id=${passage.id}`);
  }
  return item;
}

function show(reply) {
  const filled = reply.text !== undefined;
  const read = filled || reply.answer !== ""; // otherwise the run has no reader for questions
  const closedBook = filled ? { answer: reply.answer_without_retrieval } : reply.closed_book;
  byId("answer").textContent = read
    ? reply.answer : "No answer: this run has no reader for questions. These passages were found.";
  byId("probability").textContent = read ? `probability ${percent(reply.probability)}` : "";
  byId("closed-book").hidden = !closedBook;
  byId("closed-book-answer").textContent = closedBook?.answer ?? "";
  byId("closed-book-probability").textContent = filled
    ? `probability of “${reply.answer}”: ${percent(reply.without_retrieval)}`
    : closedBook ? `probability ${percent(closedBook.probability)}` : "";
  byId("read").textContent = ["The passage with the largest weight comes first."]
    .concat(reply.edits_version ? `Changes so far: ${reply.edits_version}.` : []).join(" ");
  byId("read").title = `Found with the passage index of training step ${reply.index_step}`;
  const best = [...reply.passages].sort((one, other) => other.p_z - one.p_z);
  byId("passages").replaceChildren(...best.map(showPassage));
  byId("result").hidden = false;
  const differs = read && previousAnswer !== null && previousAnswer !== reply.answer;
  byId("before").hidden = !differs;
  byId("before").textContent = differs ? `before the change: ${previousAnswer}` : "";
  byId("status").textContent = read
    ? `Answer: ${reply.answer}, ${byId("probability").textContent}.` : byId("answer").textContent;
  byId("status").classList.add("unseen"); // for screen readers; others see the card
}

async function answer({ again = false } = {}) {
  const text = again ? asking ?? asked : byId("question").value.trim();
  if (!text) return;
  const number = ++sent;
  asking = text;
  const k = byId("k").value ? Number(byId("k").value) : undefined;
  const retriever = byId("retriever").value;
  const isBlank = /\[mask\]|<mask>/i.test(text); // all forms that the server accepts
  const path = isBlank ? "/api/fill" : "/api/ask";
  const content = isBlank ? { text, retriever } : { question: text, k, retriever };
  const reply = await busy("Reading …", () => call("POST", path, content).catch((error) => {
    if (number === sent) throw error;
  }));
  if (number !== sent) return;
  asking = null;
  if (!reply) return;
  previousAnswer = again && text === asked ? previousAnswer ?? byId("answer").textContent : null;
  asked = text;
  show(reply);
  history.replaceState(null, "", `?q=${encodeURIComponent(text)}`);
}

// `applied` is called as soon as the server has made the change.
async function change(method, path, content, problem, applied = () => {}) {
  const done = await busy("Applying the change …", () => call(method, path, content), problem);
  if (!done) return;
  applied();
  previousAnswer = null;
  if (asking ?? asked) await answer({ again: true });
  else byId("status").textContent = "The change is applied.";
  await showChanges().catch((error) => { byId("problem").textContent = error.message; });
  // If the pressed button was removed, the focus is lost: set it again.
  if (document.activeElement === document.body)
    byId(byId("result").hidden ? "add" : "answer-title").focus();
}

async function showChanges() {
  const { passages } = await call("GET", "/api/passages");
  byId("undo-all").hidden = readOnly || !passages.length;
  byId("edits").replaceChildren(...passages.map((passage) => {
    const item = element("li", "", "card");
    const title = element("h3", "");
    showTitle(title, passage);
    const undo = element("button", "Undo");
    undo.type = "button";
    undo.setAttribute("aria-label", `Undo: ${passage.edit} ${passage.title}`);
    undo.onclick = () => change("DELETE", `/api/edits?id=${passage.id}`);
    const row = element("div", "", "row");
    if (!readOnly) row.append(undo);
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
  byId("save").disabled = true; // a second press would add a second passage
  const applied = () => byId("editor").close();
  await change(method, "/api/passages", body, byId("editor-problem"), applied);
  byId("save").disabled = false;
};
byId("cancel").onclick = () => byId("editor").close();
byId("add").onclick = () => openEditor();
byId("undo-all").onclick = () => change("DELETE", "/api/edits");

async function showExamples() {
  const { examples } = await call("GET", "/api/examples");
  byId("examples-section").hidden = !examples.length;
  byId("examples").replaceChildren(...examples.map((text) => {
    const item = element("li", "");
    const button = element("button", text);
    button.type = "button";
    button.onclick = () => {
      byId("question").value = text;
      return answer();
    };
    item.append(button);
    return item;
  }));
}

await busy("", async () => {
  const health = await call("GET", "/api/health");
  byId("about").textContent = `${health.passages.toLocaleString("en")} passages to search. `
    + `Model trained for ${health.step.toLocaleString("en")} steps.`
    + (health.answers_questions ? "" : " It was not fine-tuned on questions: it only fills in [MASK].");
  byId("asks").textContent = health.answers_questions ? "A question, or a" : "A";
  readOnly = health.read_only;
  byId("add").hidden = readOnly;
  byId("k").max = health.most_passages;
  byId("k").value = health.k;
  byId("k").disabled = !health.answers_questions; // a hidden field must not be validated
  byId("retriever").value = health.retriever;
  byId("k").parentElement.hidden = !health.answers_questions;
  await showChanges();
  await showExamples();
});
const query = new URLSearchParams(location.search).get("q");
if (query) {
  byId("question").value = query;
  await answer();
}
