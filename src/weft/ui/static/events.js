// What happened, the newest first, and the slider that goes back along it.

import { h, s } from "./dom.js";
import { EVENT_MARKS, clock, moment, said, weight } from "./words.js";

const MOST = 150; // rows that are shown at once

export function list(model, { count, only, go }) {
  const upTo = model.events.slice(0, count);
  const found = upTo.map((event, number) => ({ event, number })).filter(({ event }) => !only || event.node === only);
  const shown = found.slice(-MOST).reverse();
  const row = ({ event, number }) => {
    const health = weight(event.kind);
    return h(
      "li",
      { class: `event ${health}${number === count - 1 && count < model.events.length ? " current" : ""}` },
      h(
        "button",
        { type: "button", "data-key": `event/${event.id}`, title: `${moment(event.time)}: show how it was then`, click: () => go(number + 1) },
        h("span", { class: `sign ${health}`, "aria-hidden": "true" }, EVENT_MARKS[health]),
        h("span", { class: "when" }, clock(event.time)),
        h("span", { class: "what" }, h("strong", {}, `${event.node} ${event.kind}`), ` ${event.subject}`, event.peer ? ` (${event.peer})` : "", event.code ? h("code", {}, event.code) : null),
        said(event) ? h("span", { class: "said" }, said(event)) : null,
      ),
    );
  };
  return [
    h("h2", {}, "Events", h("span", { class: "detail" }, only ? ` of ${only}` : "")),
    shown.length ? h("ol", {}, shown.map(row)) : h("p", { class: "empty" }, "None are kept."),
    found.length > MOST ? h("p", { class: "detail" }, `and ${found.length - MOST} earlier ones: go back in time to see them`) : null,
  ];
}

export function slider(model, { count, isLive, go, now }) {
  const all = model.events;
  const event = all[count - 1];
  const words = isLive ? "now" : event ? `${moment(event.time)}, after: ${event.node} ${event.kind} ${event.subject}` : "before all events that are kept";
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
