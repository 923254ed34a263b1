// The way of a packet, and of its answer: each node's steps in a column, up to where it ends.

import { h } from "./dom.js";
import { badge } from "./node.js";
import { OUTSIDE } from "./words.js";

const PASSES = { true: ["✓", "well", "passes"], false: ["✕", "down", "is dropped"], null: ["?", "unknown", "cannot be told"] };
const ENDS = { delivered: "delivered", sent: "sent on", dropped: "dropped", undecided: "cannot be told", lost: "not reached" };
const NOT_REACHED = ["·", "unknown", "was not reached"];

export function trace({ source, target, size }, found, { again, turn, sized }) {
  const head = h(
    "div",
    { class: "head" },
    h("h2", { tabindex: -1, "data-key": "title" }, `${source} → ${target}`),
    h("button", { type: "button", "data-key": "again", click: again }, "Look again"),
    target === OUTSIDE ? null : h("button", { type: "button", "data-key": "turn", click: turn }, "The other way"),
    h("label", { class: "detail" }, "Packets of ", h("input", { type: "number", min: 68, max: 65535, placeholder: "any", value: size || "", "data-key": "size", change: ({ target: input }) => input.reportValidity() && sized(Number(input.value)) }), " bytes"),
  );
  if (found === undefined) return [head, h("p", { class: "empty", role: "status" }, "Looking at both nodes, then pinging …")];
  if (found.failed) return [head, h("p", { class: "wrong" }, found.failed)];
  const health = found.well ? "well" : "down";
  const legs = found.legs.slice(0, found.last + 1).map((each, number) => ({ ...each, number, tried: found.tried }));
  const row = (direction) => legs.filter((each) => each.direction === direction);
  return [
    head,
    h("p", { class: `verdict ${health}`, role: "status" }, badge(health, found.well ? "arrives" : "lost"), ` ${found.verdict}`),
    h("p", { class: "detail" }, `Computed from a look at each node; then ${found.reached} of ${found.tried} probes${found.sized ? ` of ${found.sized.size} bytes` : ""} were answered. +${found.tried} at a step: all of them were seen there.`),
    found.sources.length > 1 ? h("p", { class: "detail" }, `Seen to come from ${found.sources.map(({ address, device, place }) => `${address} (${device} of ${place})`).join(", then from ")}.`) : null,
    ["there", "back"].filter((direction) => row(direction).length).map((direction) => [
      h("h3", { class: "direction" }, direction === "there" ? "The packet" : "The answer"),
      h("ol", { class: "legs", start: row(direction)[0].number + 1 }, row(direction).map(leg)),
    ]),
  ];
}

function leg({ node, pod, direction, way, counted, number, tried }) {
  const last = way.end === "dropped" || way.end === "lost" ? "down" : way.end === "undecided" ? "unknown" : "well";
  const where = [way.to && `to ${way.to}`, way.carried && `inside ${way.carried}`].filter(Boolean).join(", ");
  return h(
    "li",
    { class: `leg ${direction}` },
    h("h3", {}, h("span", { class: "number" }, number + 1), ` ${pod || node}`, pod ? h("span", { class: "detail" }, `on ${node}`) : null),
    h("ol", { class: "hops" }, way.hops.map((each) => hop(each, counted[each.device], tried))),
    h("p", { class: `end ${last}` }, badge(last, ENDS[way.end]), where ? ` ${where}` : null),
  );
}

function hop({ what, seen, passes, reached }, count, tried) {
  const [sign, health, word] = reached ? PASSES[String(passes)] : NOT_REACHED;
  return h("li", { class: `hop ${health}` }, h("span", { class: "sign", role: "img", "aria-label": word }, sign), h("span", { class: "what" }, what, count === undefined ? null : h("span", { class: `count ${count < tried ? "down" : "well"}` }, `+${count}`)), h("span", { class: "seen" }, seen));
}
