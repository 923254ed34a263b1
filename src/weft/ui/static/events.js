// What happened, the newest first, and the slider that goes back along it.

import { h, s } from "./dom.js";
import { EVENT_MARKS, clock, moment, said, weight } from "./words.js";

const MOST = 150; // rows that are shown at once
const FOLDED = { joined: "nodes met", left: "nodes lost sight of each other", changed: "nodes saw a change" };
const ALONE = 2; // rows of a kind that are not folded: N nodes tell of each other N × (N − 1) times
const NAMED = 3; // of those that are folded
const unfolded = new Set(); // by the first event's id

export function list(model, { count, only, go }) {
  const upTo = model.events.slice(0, count);
  const found = upTo.map((event, number) => ({ event, number })).filter(({ event }) => !only || event.about.includes(only));
  const groups = folded(found);
  const row = ({ event, number }) => {
    const health = weight(event.kind);
    return h(
      "li",
      { class: `event ${health}${event.about.includes(event.node) ? "" : " lab"}${number === count - 1 && count < model.events.length ? " current" : ""}` },
      h(
        "button",
        { type: "button", "data-key": `event/${event.id}`, title: `${moment(event.time)}: show how it was then`, click: () => go(number + 1) },
        h("span", { class: `sign ${health}`, "aria-hidden": "true" }, EVENT_MARKS[health]),
        h("span", { class: "when" }, clock(event.time)),
        h("span", { class: "what" }, h("strong", {}, event.node), ` ${event.what}`, event.code ? h("code", {}, event.code) : null),
        said(event) ? h("span", { class: "said" }, said(event)) : null,
      ),
    );
  };
  const group = (rows) => {
    if (rows.length === 1) return row(rows[0]);
    const [first, last] = [rows[0].event, rows.at(-1).event];
    const health = weight(first.kind);
    const named = rows.slice(0, NAMED).map(({ event }) => `${event.node} ${event.what}`);
    const fold = ({ target }) => (target.open ? unfolded.add(first.id) : unfolded.delete(first.id));
    return h(
      "li",
      { class: `event ${health}${rows.at(-1).number === count - 1 && count < model.events.length ? " current" : ""}` },
      h(
        "details",
        { open: unfolded.has(first.id), toggle: fold },
        h(
          "summary",
          { "data-key": `fold/${first.id}`, title: "Show each of them" },
          h("span", { class: `sign ${health}`, "aria-hidden": "true" }, EVENT_MARKS[health]),
          h("span", { class: "when" }, clock(last.time)),
          h("span", { class: "what" }, h("strong", {}, `${rows.length} times ${FOLDED[first.kind]}`), `: ${named.join(", ")}${rows.length > NAMED ? ", …" : ""}`),
        ),
        h("ol", {}, rows.map(row).reverse()),
      ),
    );
  };
  return [
    h("h2", {}, "Events", h("span", { class: "detail" }, only ? ` of ${only}` : "")),
    found.length ? h("ol", {}, groups.slice(-MOST).reverse().map(group)) : h("p", { class: "empty" }, "None are kept."),
    groups.length > MOST ? h("p", { class: "detail" }, `and ${groups.slice(0, -MOST).flat().length} earlier ones: go back in time to see them`) : null,
  ];
}

// Rows that follow each other and are of one kind of those that each node tells of each other, together.
export function folded(rows) {
  const groups = [];
  for (const row of rows) {
    const before = groups.at(-1);
    if (before && row.event.kind in FOLDED && before[0].event.kind === row.event.kind) before.push(row);
    else groups.push([row]);
  }
  return groups.flatMap((group) => (group.length > ALONE ? [group] : group.map((row) => [row])));
}

export function slider(model, { count, isLive, go, now }) {
  const all = model.events;
  const event = all[count - 1];
  const words = isLive ? "now" : event ? `${moment(event.time)}, after: ${event.node} ${event.what}` : "before all events that are kept";
  return [
    h("label", { for: "slider" }, "Time"),
    h("button", { type: "button", "data-key": "before", "aria-label": "The event before", disabled: count === 0, click: () => go(count - 1) }, "‹"),
    h(
      "div",
      { class: "track" },
      ticks(all),
      h("input", {
        id: "slider",
        type: "range",
        min: 0,
        max: all.length,
        value: count,
        "data-key": "slider",
        "aria-valuetext": words,
        input: (change) => go(Number(change.target.value)),
      }),
    ),
    h("button", { type: "button", "data-key": "after", "aria-label": "The event after", disabled: isLive, click: () => go(count + 1) }, "›"),
    h("output", { for: "slider" }, words),
    h("button", { type: "button", class: isLive ? "now" : "now main", "data-key": "now", disabled: isLive, click: now }, "Now"),
  ];
}

// One stroke for each event, by weight; in as many columns as there are events.
function ticks(all) {
  const paths = { down: "", poor: "", well: "", unknown: "" };
  all.forEach((event, number) => {
    const health = weight(event.kind);
    const tall = { down: 16, poor: 11, well: 8, unknown: 5 }[health];
    paths[health] += `M${number + 1} ${16 - tall}V16`;
  });
  return s(
    "svg",
    { viewBox: `0 0 ${Math.max(1, all.length)} 16`, preserveAspectRatio: "none", "aria-hidden": "true" },
    Object.entries(paths).map(([health, d]) => (d ? s("path", { class: health, d, "vector-effect": "non-scaling-stroke" }) : null)),
  );
}
