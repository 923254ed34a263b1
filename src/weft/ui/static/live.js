// Where the data comes from: the server, as it changes, or this file itself if it is an export.

export function exported() {
  const kept = document.getElementById("shown");
  return kept === null ? null : JSON.parse(kept.textContent);
}

// Tells each `all` and `change`, and whether the server is heard.
export function follow({ told, heard }) {
  const stream = new EventSource("live");
  stream.addEventListener("all", (event) => told(JSON.parse(event.data), true));
  stream.addEventListener("change", (event) => told(JSON.parse(event.data), false));
  stream.addEventListener("open", () => heard(true));
  stream.addEventListener("error", () => heard(false)); // it connects again by itself
}

// What is answered; or, as `failed`, why it is not.
export async function ask(path, question) {
  try {
    const options = question === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) };
    const answer = await fetch(path, options);
    const said = await answer.json();
    return answer.ok ? said : { failed: said.map((each) => [each.code, each.where && `${each.where}:`, each.seen, each.hint].filter(Boolean).join(" ")).join("; ") };
  } catch (error) {
    return { failed: `weft ui does not answer: ${error.message}` };
  }
}
