// The page: where we are, what was chosen, and which keys do what. Everything is drawn again from the model.

import { h, show, focusOn } from "./dom.js";
import { Model, past } from "./model.js";
import { cluster } from "./cluster.js";
import { node, interfaces } from "./node.js";
import { trace } from "./trace.js";
import { list, slider } from "./events.js";
import { ask, exported, follow } from "./live.js";
import { clock } from "./words.js";

const model = new Model();
const [stage, events, time, crumbs] = ["stage", "events", "time", "crumbs"].map((id) => document.getElementById(id));
const kept = exported();
const state = {
  upTo: null, // events up to which it is shown; null is now
  picked: null,
  cameFrom: null, // the node that was shown before all of them are again
  isHeard: kept !== null,
  links: new Map(Object.entries(kept?.interfaces ?? {})),
  traces: new Map(),
};

// --- Where we are: the part of the address behind #

function place() {
  const [, kind, ...names] = location.hash.split("/").map(decodeURIComponent);
  if (kind === "node" && names[0]) return { view: names[1] === "interfaces" ? "interfaces" : "node", name: names[0] };
  if (kind === "trace" && names[1]) return { view: "trace", source: names[0], target: names[1], size: Number(names[2]) || 0 };
  return { view: "cluster" };
}

function go(...names) {
  location.hash = ["", ...names].map(encodeURIComponent).join("/");
}

const openNode = (name) => go("node", name);
const openLinks = (name) => go("node", name, "interfaces");

// A pod is on a node; out of its interfaces, that node is shown.
function outOf(name) {
  const pod = model.pod(name);
  return pod ? pod.node : name;
}

function out() {
  const here = place();
  if (state.picked !== null) state.picked = null;
  else if (here.view === "interfaces") return openNode(outOf(here.name));
  else if (here.view !== "cluster") {
    state.cameFrom = here.name ?? null;
    return go();
  }
  draw();
}

// Two pods, or a pod and a Service, one after the other: a Service is what is asked, whichever was chosen first.
function pick(name) {
  const before = state.picked;
  if (before === null || (model.service(before) && model.service(name))) state.picked = before === name ? null : name;
  else {
    state.picked = null;
    const [source, target] = model.service(before) ? [name, before] : [before, name];
    if (before !== name) return go("trace", source, model.service(target)?.target ?? target);
  }
  draw();
}

// --- What is asked when it is shown

async function lookAtLinks(name) {
  if (kept) return;
  const found = await ask(`interfaces/${encodeURIComponent(name)}`);
  if (!found.failed || !Array.isArray(state.links.get(name))) state.links.set(name, found);
  draw();
}

async function lookAtTrace({ source, target, size }) {
  const key = JSON.stringify([source, target, size]);
  state.traces.delete(key);
  draw();
  state.traces.set(key, kept ? { failed: "A file shows no new trace: 'weft ui' does, and 'weft lab trace'." } : await ask("trace", { source, target, size: size || null }));
  draw();
}

let asking = 0;

function lookAgain() {
  const here = place();
  if (here.view !== "interfaces" || asking) return;
  asking = setTimeout(() => {
    asking = 0;
    lookAtLinks(here.name);
  }, 200);
}

// --- What is shown

function count() {
  return state.upTo === null ? model.events.length : Math.min(state.upTo, model.events.length);
}

function goTo(number) {
  state.upTo = number >= model.events.length ? null : Math.max(0, number);
  draw();
  events.scrollTop = 0; // where the newest of that time stands
}

function draw() {
  const here = place();
  const then = state.upTo === null ? null : past(model, count());
  show(stage, content(here, then).flat().filter(Boolean));
  show(events, list(model, { count: count(), only: here.view === "node" || here.view === "interfaces" ? outOf(here.name) : "", go: goTo }));
  showTime();
  show(crumbs, trail(here));
  const { lab } = model;
  const network = lab ? [lab.backend, ...lab.networks, lab.store && `store ${lab.store_state}`] : [];
  document.getElementById("summary").textContent = network.filter(Boolean).join(" · ");
  document.body.className = then ? "past" : "";
  document.body.dataset.view = here.view;
  document.title = `${here.name ?? (here.source ? `${here.source} → ${here.target}` : (lab?.name ?? "…"))} – weft`;
  showLive(then);
}

// The slider stays the same element while it is dragged.
function showTime() {
  const parts = slider(model, { count: count(), isLive: state.upTo === null, go: goTo, now: () => goTo(Infinity) });
  const held = document.activeElement?.id === "slider" ? document.activeElement : null;
  if (held) {
    const fresh = parts.find((part) => part.className === "track");
    held.max = model.events.length;
    held.value = count();
    held.setAttribute("aria-valuetext", fresh.querySelector("input").getAttribute("aria-valuetext"));
    time.querySelector("output").textContent = parts.find((part) => part.localName === "output").textContent;
    time.querySelector("svg").replaceWith(fresh.querySelector("svg"));
    time.querySelectorAll("button").forEach((button, number) => {
      const other = parts.filter((part) => part.localName === "button")[number];
      button.replaceWith(other);
    });
  } else show(time, parts);
}

function content(here, then) {
  if (!model.lab) return [h("p", { class: "empty" }, model.away || "Loading …")];
  const shared = { then, picked: state.picked, pick, open: openNode, links: openLinks };
  if (here.view === "node") return node(model, here.name, shared);
  if (here.view === "interfaces") {
    const back = h("button", { type: "button", "data-key": "back", click: () => openNode(outOf(here.name)) }, `Out to ${outOf(here.name)}`);
    return interfaces(here.name, state.links.get(here.name), { back });
  }
  if (here.view === "trace") {
    const { source, target, size } = here;
    const found = state.traces.get(JSON.stringify([source, target, size]));
    const sized = (bytes) => go("trace", source, target, ...(bytes ? [bytes] : []));
    return trace(here, found, { again: () => lookAtTrace(here), turn: () => go("trace", target, source), sized });
  }
  // In a narrow window the stage is as tall as what is in it.
  const tall = matchMedia("(max-width: 860px)").matches ? 480 : stage.clientHeight - 32;
  const room = { width: Math.max(300, stage.clientWidth - 32), height: tall };
  return cluster(model, { ...shared, room, focus: (key) => focusOn(stage, key) });
}

function trail(here) {
  const links = [["#/", model.lab?.name ?? "…"]];
  if (here.name) links.push([`#/node/${encodeURIComponent(outOf(here.name))}`, outOf(here.name)]);
  if (here.view === "interfaces") links.push([location.hash, here.name === outOf(here.name) ? "interfaces" : here.name]);
  if (here.view === "trace") links.push([location.hash, "trace"]);
  return h("ol", {}, links.map(([href, text], number) => h("li", {}, h("a", { href, "data-key": `crumb/${number}`, "aria-current": number === links.length - 1 ? "page" : null }, text))));
}

function showLive(then) {
  const live = document.getElementById("live");
  const banner = document.getElementById("banner");
  const at = model.unix ? clock(model.unix) : "";
  let words = "live";
  if (kept) words = `as it was ${new Date(model.unix * 1000).toLocaleString("en-GB")}`;
  else if (!state.isHeard) words = "not connected";
  else if (model.away) words = "away";
  if (then) words = "in the past";
  if (live.textContent !== words) live.textContent = words;
  live.className = then || kept ? "past" : words === "live" ? "well" : "down";
  const gone = !kept && (!state.isHeard ? "weft ui does not answer any more." : model.away);
  const text = gone ? `${gone} What is shown is of ${state.last || at}.` : "";
  if (banner.textContent !== text) banner.textContent = text;
  banner.hidden = !text;
}

// --- What is done

function arrived() {
  const here = place();
  if (here.view === "interfaces") lookAtLinks(here.name);
  if (here.view === "trace") lookAtTrace(here);
  draw();
  stage.scrollTop = 0;
  focusOn(stage, here.view === "cluster" ? `node/${state.cameFrom ?? ""}` : "title");
  state.cameFrom = null;
}

function typed(event) {
  const isTyping = event.target.closest?.("dialog, input[type=number]") || event.ctrlKey || event.altKey || event.metaKey;
  if (isTyping) return;
  if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "Escape") out();
  else if (event.key === ",") goTo(count() - 1);
  else if (event.key === ".") goTo(count() + 1);
  else if (event.key === "l" || event.key === "L") goTo(Infinity);
  else return;
  event.preventDefault();
}

addEventListener("hashchange", arrived);
addEventListener("keydown", typed);
new ResizeObserver(() => requestAnimationFrame(draw)).observe(stage);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());

if (kept) {
  model.take(kept, true);
  arrived();
} else {
  follow({
    told: (news, whole) => {
      model.take(news, whole);
      if (!news.away) state.last = clock(news.unix);
      lookAgain();
      draw();
    },
    heard: (isHeard) => {
      state.isHeard = isHeard;
      showLive(state.upTo !== null);
    },
  });
  arrived();
}
