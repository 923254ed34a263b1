// The first level: all nodes with their pods, and how it is between them.

import { h, s, pressed } from "./dom.js";
import { along, corners, fitting, lines, places, towards } from "./layout.js";
import { HEALTH, MARKS, OUTSIDE, counted, measured, moment } from "./words.js";

const MANY = 8; // troubled edges of one node beyond which their number is shown instead of the edges
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82]; // of an edge, where its label may be: in the middle those of opposite nodes would meet
const LABELLED = 6; // nodes up to which each edge has its label

export function cluster(model, { room, then, picked, open, pick, focus }) {
  const nodes = model.list("node");
  if (!nodes.length) return [h("p", { class: "empty" }, "Nothing is known yet.")];
  const pods = Math.max(...nodes.map((node) => node.pods.length));
  const below = services(model, picked, pick);
  const free = Math.max(320, room.height - 44 - (below ? 64 : 0));
  const notes = new Map(nodes.map((node) => [node.name, [...node.place, ...(then ? [] : node.notes)]])); // what the lab does to links is known for the present alone
  const about = (node, fits) => [node.subnets[0] ?? "no subnet", ...notes.get(node.name)].flatMap((text) => lines(text, fits));
  const layout = places(nodes.length, room.width, free, { pods, words: (fits) => Math.max(...nodes.map((node) => about(node, fits).length)) });
  const at = new Map(nodes.map((node, number) => [node.name, layout.at[number]]));
  const status = (node) => then?.node(node.name) ?? node;
  const edges = model.list("edge").map((edge) => ({ ...edge, ...(then ? { ...then.edge(edge.a, edge.b), tried: undefined, cut: undefined } : {}) }));
  const troubled = countTroubled(edges);
  const hasAll = layout.style === "card" || nodes.length <= LABELLED;
  const drawn = edges.filter((edge) => hasAll || isDrawn(edge, troubled));
  const ways = new Map(drawn.map((edge, number) => [edge, corners(layout, at.get(edge.a), at.get(edge.b), number)]));
  const taken = [];
  const height = Math.max(free, layout.height ?? 0);
  const marked = then?.event;
  const picture = s(
    "svg",
    { class: `cluster ${layout.style}s`, viewBox: `0 0 ${room.width} ${height}`, width: room.width, height, role: "group", "aria-label": summary(model) },
    drawn.map((edge) => line(edge, ways.get(edge), marked, then ? [] : model.carried(edge.a, edge.b))),
    nodes.map((node, number) =>
      shape(node, status(node), {
        layout,
        number,
        at: at.get(node.name),
        bad: troubled.get(node.name) ?? 0,
        grouped: (troubled.get(node.name) ?? 0) > MANY,
        picked,
        open,
        pick,
        isMarked: marked?.about.includes(node.name),
        notes: notes.get(node.name),
        about: (fits) => about(node, fits),
        arrow: (key) => {
          const next = towards(layout.at, number, key);
          if (next >= 0) focus(`node/${nodes[next].name}`);
        },
      }),
    ),
    drawn.map((edge) => label(edge, ways.get(edge), layout, taken)),
  );
  return [h("h2", { class: "hidden" }, summary(model)), picture, below, legend(model, hasAll, picked, pick)];
}

// Services are on no node: they stand below the picture, each with what it leads to.
function services(model, picked, pick) {
  const all = model.list("service");
  if (!all.length) return null;
  const row = ({ name, addresses, port, protocol, node_port, pods }) =>
    h(
      "li",
      {},
      h("button", { type: "button", class: `pod${picked === name ? " picked" : ""}`, "aria-pressed": String(picked === name), "data-key": `service/${name}`, "aria-label": `Service ${name}`, click: () => pick(name) }, name),
      h("span", { class: "detail" }, `${addresses.join(" ")} port ${port}/${protocol}${node_port ? `, each node's port ${node_port}` : ""} → ${pods.join(" ") || "no pod"}`),
    );
  return h("section", { class: "services" }, h("h3", {}, "Services"), h("ul", {}, all.map(row)));
}

function countTroubled(edges) {
  const found = new Map();
  for (const edge of edges) {
    if (edge.health !== "poor" && edge.health !== "down") continue;
    for (const name of [edge.a, edge.b]) found.set(name, (found.get(name) ?? 0) + 1);
  }
  return found;
}

function isDrawn(edge, troubled) {
  if (edge.health !== "poor" && edge.health !== "down") return false;
  return (troubled.get(edge.a) ?? 0) <= MANY && (troubled.get(edge.b) ?? 0) <= MANY;
}

function line(edge, way, marked, carried) {
  const isMarked = marked?.pairs.some((pair) => pair.includes(edge.a) && pair.includes(edge.b));
  const d = way.map(({ x, y }, number) => `${number ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const words = [`${edge.a} – ${edge.b}: ${HEALTH[edge.health]}, ${measured(edge)}`, ...edge.words, ...carried];
  return s(
    "g",
    { class: `edge ${edge.health}${isMarked ? " marked" : ""}`, role: "img", "aria-label": words.join("; ") },
    s("title", {}, words.join("\n")),
    s("path", { class: "wide", d }),
    s("path", { class: "thin", d }),
  );
}

// On top of the nodes' edges, where it hides no node and no other label if there is such a place; else the mark alone.
function label(edge, way, { at: spots, size }, taken) {
  const isTroubled = edge.health === "poor" || edge.health === "down";
  if (spots.length > LABELLED && !isTroubled) return null;
  const long = `${MARKS[edge.health]} ${measured(edge)}`;
  const sizes = [[long, 18 + long.length * (edge.health === "down" ? 7.4 : 6.6), 24], [MARKS[edge.health], 18, 16]];
  const meets = (one, other) => Math.abs(one.x - other.x) < (one.w + other.w) / 2 && Math.abs(one.y - other.y) < (one.h + other.h) / 2;
  const hides = (one) => taken.some((other) => meets(one, other)) || spots.some((spot) => meets(one, { ...spot, ...size }));
  const found = sizes.flatMap(([text, w, h]) => SHARES.map((share) => ({ ...along(way, share), text, w, h })));
  const { x, y, text, w, h: tall } = found.find((each) => !hides(each)) ?? found.at(-SHARES.length);
  taken.push({ x, y, w, h: tall });
  return s(
    "g",
    { class: `label ${edge.health}`, "aria-hidden": "true", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` },
    s("rect", { x: -w / 2, y: -tall / 2, width: w, height: tall, rx: tall / 2 }),
    s("text", { y: 4, "text-anchor": "middle" }, text),
  );
}

function shape(node, status, how) {
  const { w, h: tall } = how.layout.size;
  const isCard = how.layout.style === "card";
  const act = pressed((event) => {
    event.stopPropagation();
    how.open(node.name);
  });
  const words = [node.name, HEALTH[status.health], node.subnets.join(" "), counted(node.pods.length, "pod"), ...how.notes, ...status.wrong, node.heard && `last heard of ${moment(node.heard)}`];
  return s(
    "g",
    { class: `node ${status.health}${how.isMarked ? " marked" : ""}`, transform: `translate(${(how.at.x - w / 2).toFixed(1)} ${(how.at.y - tall / 2).toFixed(1)})` },
    s(
      "g",
      {
        class: "body",
        role: "button",
        tabindex: 0,
        "data-key": `node/${node.name}`,
        "aria-label": words.filter(Boolean).join(", "),
        click: act.click,
        keydown: (event) => {
          if (event.key.startsWith("Arrow")) {
            event.preventDefault();
            how.arrow(event.key);
          } else act.keydown(event);
        },
      },
      s("title", {}, words.filter(Boolean).join("\n")),
      s("rect", { class: "box", width: w, height: tall, rx: isCard ? 12 : 8 }),
      s("rect", { class: "stripe", x: 0, y: isCard ? 16 : 8, width: 4, height: tall - (isCard ? 32 : 16), rx: 2 }),
      isCard ? cardText(node, status, w, how.about(fitting(w))) : tileText(node, status, { w, tall, how }),
    ),
    isCard ? chips(node, w, how) : null,
  );
}

function mark(health, x, y) {
  return s("g", { class: `mark ${health}`, transform: `translate(${x} ${y})`, "aria-hidden": "true" }, s("circle", { r: 9 }), s("text", { y: 4, "text-anchor": "middle" }, MARKS[health]));
}

function cardText(node, status, w, about) {
  return [
    s("text", { class: "name", x: 18, y: 29 }, short(node.name, Math.floor((w - 56) / 8))),
    about.map((text, number) => s("text", { class: "detail", x: 18, y: 49 + 17 * number }, text)),
    mark(status.health, w - 21, 24),
  ];
}

function tileText(node, status, { w, tall, how }) {
  const badge = how.grouped ? `${MARKS.down} ${how.bad}` : "";
  const about = tall < 66 ? [] : how.notes.flatMap((text) => lines(text.replace(/^link: /, ""), Math.floor((w - 18) / 5.8)));
  return [
    s("text", { class: "name", x: 11, y: 19 }, short(node.name, Math.floor((w - 16) / 7.2))),
    about.slice(0, 3).map((text, number) => s("text", { class: "detail", x: 11, y: 33 + 12 * number }, number === 2 && about.length > 3 ? `${text} …` : text)),
    about.length > 2 || how.grouped ? null : dots(node, w, tall),
    badge ? s("text", { class: "badge", x: 11, y: tall - 9 }, badge) : null,
    mark(status.health, w - 14, tall - 13),
  ];
}

function chips(node, w, how) {
  const { line, top } = how.layout.size;
  const [tall, gap] = [22, 6];
  const wide = (w - 34 - (line - 1) * gap) / line;
  const shown = node.pods.length > 2 * line ? node.pods.slice(0, 2 * line - 1) : node.pods;
  const spot = (number) => `translate(${18 + (number % line) * (wide + gap)} ${top + Math.floor(number / line) * (tall + 5)})`;
  const fits = Math.floor((wide - 6) / 5.9);
  const made = shown.map((pod, number) =>
    s(
      "g",
      {
        class: `pod${how.picked === pod ? " picked" : ""}`,
        transform: spot(number),
        role: "button",
        tabindex: 0,
        "data-key": `pod/${pod}`,
        "aria-pressed": String(how.picked === pod),
        "aria-label": `pod ${pod} on ${node.name}`,
        ...pressed((event) => {
          event.stopPropagation();
          how.pick(pod);
        }),
      },
      s("title", {}, pod),
      s("rect", { width: wide, height: tall, rx: 11 }),
      s("text", { x: wide / 2, y: 15, "text-anchor": "middle" }, short(pod, fits)),
    ),
  );
  const rest = node.pods.length - shown.length;
  if (rest) made.push(s("text", { class: "detail", transform: spot(2 * line - 1), x: wide / 2, y: 15, "text-anchor": "middle" }, `+${rest}`));
  return made;
}

function dots(node, w, tall) {
  const fits = Math.floor((w - 38) / 9);
  const shown = node.pods.slice(0, fits);
  return s("g", { class: "dots", "aria-hidden": "true" }, shown.map((_, number) => s("circle", { cx: 14 + number * 9, cy: tall - 13, r: 3 })));
}

function short(text, most) {
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}

function summary(model) {
  const nodes = model.list("node");
  const ill = nodes.filter((node) => node.health !== "well").length;
  const trouble = ill ? `, ${ill} of them not well` : "";
  return `${model.lab?.kind === "node" ? "Node and its peers" : `Lab ${model.lab?.name ?? ""}`}: ${counted(nodes.length, "node")}${trouble}, ${counted(model.list("pod").length, "pod")}`;
}

function legend(model, hasAll, picked, pick) {
  const sample = (health) =>
    h(
      "li",
      { class: health },
      s("svg", { width: 34, height: 12, "aria-hidden": "true" }, s("g", { class: `edge ${health}` }, s("path", { class: "thin", d: "M1 6H33" }))),
      `${MARKS[health]} ${HEALTH[health]}`,
    );
  const hint = picked
    ? [h("strong", {}, picked), model.service(picked) ? " ← choose the pod that asks it" : [" → choose the other pod, a Service, or ", h("button", { type: "button", class: "plain", "data-key": "outside", click: () => pick(OUTSIDE) }, OUTSIDE), ", to see the way to it"]]
    : !hasAll
      ? ["Edges that are well are not drawn."]
      : model.list("pod").length > 1
        ? [`Choose two pods${model.list("service").length ? ", or a pod and a Service," : ""} to see the way of a packet between them.`]
        : [];
  return h("div", { class: "legend" }, h("ul", { "aria-label": "Edges" }, Object.keys(MARKS).map(sample)), h("p", { class: picked ? "hint picking" : "hint" }, hint));
}
