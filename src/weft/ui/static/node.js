// The second level: what one node's daemon says of itself and of its peers.

import { h } from "./dom.js";
import { HEALTH, MARKS, counted, measured, moment, span } from "./words.js";

export function badge(health, text) {
  return h("span", { class: `badge ${health}` }, h("span", { "aria-hidden": "true" }, MARKS[health]), ` ${text ?? HEALTH[health]}`);
}

export function node(model, name, { then, picked, pick, open, links }) {
  const found = model.node(name);
  if (!found) return [h("h2", {}, name), h("p", { class: "empty" }, "There is no node of this name now.")];
  const status = then?.node(name) ?? found;
  const wrong = status.wrong;
  const head = h(
    "div",
    { class: "head" },
    h("h2", { tabindex: -1, "data-key": "title" }, name),
    badge(status.health, then ? undefined : found.daemon),
    h("p", { class: "detail" }, [...found.addresses, ...found.subnets, ...found.place, ...(then ? [] : found.notes)].join(" · ")),
    h("button", { type: "button", class: "main", "data-key": "interfaces", click: () => links(name) }, "Interfaces"),
  );
  return [
    head,
    wrong.length ? h("ul", { class: "wrong", "aria-label": "What is wrong" }, wrong.map((text) => h("li", {}, text))) : null,
    then ? h("p", { class: "detail" }, "Below is how it is now: of earlier, only events are kept.") : null,
    found.heard ? h("p", { class: "wrong" }, `Its daemon does not answer. What is pale below is what it said last, at ${moment(found.heard)}.`) : null,
    found.detail ? peers(found.detail, model, found, open) : null,
    h(
      "div",
      { class: found.heard ? "cards old" : "cards" },
      found.pods.length ? pods(model, found, picked, pick, links) : null,
      ...(found.detail ? details(found.detail, model, found.heard ?? model.unix) : [h("p", { class: "empty" }, "Its daemon says nothing.")]),
    ),
  ];
}

function card(title, ...content) {
  return h("section", { class: "card" }, h("h3", {}, title), ...content);
}

function facts(rows) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", {}, shown.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

function hint(model, picked) {
  return model.service(picked) ? `${picked} ← choose the pod that asks it` : `${picked} → choose the other pod`;
}

function pods(model, found, picked, pick, links) {
  const row = (pod) =>
    h(
      "li",
      {},
      h("button", { type: "button", class: `pod${picked === pod ? " picked" : ""}`, "aria-pressed": String(picked === pod), "data-key": `pod/${pod}`, click: () => pick(pod) }, pod),
      model.carriedBy(pod) ? h("span", { class: "detail" }, model.carriedBy(pod)) : null,
      h("button", { type: "button", class: "plain", "data-key": `links/${pod}`, click: () => links(pod) }, "interfaces"),
    );
  return card("Pods", h("ul", { class: "pods" }, found.pods.map(row)), h("p", { class: "detail" }, picked ? hint(model, picked) : "Choose two to see the way between them."));
}

// `unix` is the time at which that was told.
function details(detail, model, unix) {
  const { uplink, lease, network } = detail;
  const repairs = detail.loops.flatMap((loop) => Object.entries(loop.repairs).map(([code, count]) => [code, `${count} × by ${loop.name}`]));
  const failing = detail.loops.flatMap((loop) => Object.entries(loop.failing).map(([key, words]) => `${key}: ${words}`));
  const store = model.lab.store_state;
  return [
    uplink
      ? card("Uplink", facts([["link", `${uplink.name}, index ${uplink.index}`], ["addresses", uplink.addresses.join(" ")], ["MTU", uplink.mtu], ["why", uplink.why]]))
      : card("Uplink", h("p", { class: "detail" }, "not chosen yet")),
    lease
      ? card("Lease", facts([["subnets", lease.subnets.join(" ")], ["public IP", lease.public.join(" ")], ["known by", lease.confirmed ? "the store, in this run" : "an earlier run, until the store answers"], ["until", lease.until ? moment(lease.until) : "no end"]]))
      : card("Lease", h("p", { class: "detail" }, "none yet")),
    network
      ? card("Back end", facts([["kind", network.backend], ["network", network.networks.join(" ")], ["devices", network.devices.join(" ")], ["MTU of pods", network.mtu]]))
      : null,
    card("Daemon", facts([["version", detail.version], ["up", span(unix - detail.since)], ["process", detail.pid], ["store", [model.lab.store, store].filter(Boolean).join(" ")], ["faults", detail.faults || undefined], ...Object.entries(detail.versions)])),
    card("Repairs", repairs.length ? facts(repairs) : h("p", { class: "detail" }, "none: nobody changed what is weft's"), failing.length ? h("ul", { class: "wrong" }, failing.map((text) => h("li", {}, text))) : null),
    card("Calls of plugins", detail.calls.length ? facts(detail.calls.map(call)) : h("p", { class: "detail" }, "none yet")),
  ];
}

function call({ kind, count, failed, median_ms, worst_ms }) {
  return [kind, `${count} × ${median_ms} ms, at most ${worst_ms}${failed ? `; ${failed} failed` : ""}`];
}

function table(heads, rows, name) {
  return h(
    "div",
    { class: "scroll" },
    h("table", { "aria-label": name }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))),
  );
}

const STATES = { served: "well", lacks: "poor", unusable: "down", refused: "down" };

function peers(detail, model, { name, heard }, open) {
  if (!detail.peers.length) return h("section", { class: "card" }, h("h3", {}, "Peers"), h("p", { class: "detail" }, "none"));
  const counts = detail.peers.some((peer) => peer.sent !== null);
  const row = (peer) => {
    const edge = model.pieces.get(`edge/${name}/${peer.name}`) ?? model.pieces.get(`edge/${peer.name}/${name}`);
    const known = model.node(peer.name);
    return [
      known ? h("button", { type: "button", class: "plain", "data-key": `peer/${peer.name}`, click: () => open(peer.name) }, peer.name) : peer.name,
      peer.subnets.join(" "),
      peer.public.join(" ") || "–",
      [badge(STATES[peer.state], peer.state), ...peer.why.map((why) => h("div", { class: "why" }, why))],
      peer.since === null ? "–" : span((heard ?? model.unix) - peer.since),
      [edge?.tried ? measured(edge) : "–", ...model.carried(name, peer.name).map((way) => h("div", { class: "detail" }, way))],
      ...(counts ? [`${peer.sent ?? "–"} / ${peer.received ?? "–"}`] : []),
    ];
  };
  const heads = ["peer", "subnet", "public IP", "state", "for", "measured", ...(counts ? ["sent / received"] : [])];
  return h("section", { class: heard ? "card wide old" : "card wide" }, h("h3", {}, `Peers (${counted(detail.peers.length, "lease")})`), table(heads, detail.peers.map(row), "Peers"));
}

// The third level: what the kernel keeps of each link, ports below their bridge.
export function interfaces(name, found, { back }) {
  const title = h("div", { class: "head" }, h("h2", { tabindex: -1, "data-key": "title" }, `${name}: interfaces`), back);
  if (found === undefined) return [title, h("p", { class: "empty" }, "Asking …")];
  if (found.failed) return [title, h("p", { class: "wrong" }, found.failed)];
  const ports = (bridge) => found.filter((link) => link.master === bridge);
  const top = found.filter((link) => !link.master || !found.some((other) => other.name === link.master));
  return [title, h("div", { class: "links" }, top.flatMap((link) => [linkCard(link), ...ports(link.name).map((port) => linkCard(port, link.name))]))];
}

const LINK_STATES = { up: "well", down: "down", "no carrier": "down" };
const LISTS = { addresses: "addresses", routes: "routes by it", neighbours: "neighbours", fdb: "forwarding entries" };

function linkCard(link, bridge) {
  const rows = Object.entries(LISTS).filter(([key]) => link[key].length);
  return h(
    "section",
    { class: `card link${bridge ? " port" : ""}`, "aria-label": link.name },
    h("h3", {}, link.name, badge(LINK_STATES[link.state], link.state)),
    h("p", { class: "detail" }, [link.kind, link.about, `MTU ${link.mtu}`, link.mac, bridge ? `port of ${bridge}` : ""].filter(Boolean).join(" · ")),
    h("div", { class: "lists" }, rows.map(([key, title]) => rowsOf(title, link[key], link.more[key]))),
  );
}

function rowsOf(title, rows, more) {
  const rest = more ? h("li", { class: "detail" }, `and ${more} more`) : null;
  return h("div", {}, h("h4", {}, title), h("ul", { class: "rows" }, rows.map((text) => h("li", {}, text)), rest));
}
