// What is known: pieces by name, and events in order. `past` says how it was after an earlier event.

export class Model {
  pieces = new Map();
  events = [];
  away = "";
  unix = 0;

  // Takes `all` or a `change` in.
  take(news, whole) {
    if (whole) {
      this.pieces = new Map();
      this.events = [];
    }
    for (const name of news.gone) this.pieces.delete(name);
    for (const [name, piece] of Object.entries(news.put)) this.pieces.set(name, piece);
    this.events.push(...news.events);
    if (this.events.length > 4000) this.events = this.events.slice(-2000);
    this.away = news.away;
    this.unix = news.unix;
  }

  get lab() {
    return this.pieces.get("lab");
  }

  // All nodes in order, all pods, all edges.
  list(kind) {
    const found = [];
    for (const [name, piece] of this.pieces) if (name.startsWith(`${kind}/`)) found.push(piece);
    return kind === "node" ? found.sort((a, b) => a.order - b.order) : found;
  }

  node(name) {
    return this.pieces.get(`node/${name}`);
  }

  service(name) {
    return this.pieces.get(`service/${name}`);
  }

  // What a pod carries now, or what goes each way between two nodes, in words; nothing where nothing does.
  carriedBy(pod) {
    return this.pieces.get("traffic")?.pods[pod] ?? "";
  }

  carried(one, other) {
    const ways = this.pieces.get("traffic")?.ways ?? {};
    return [[one, other], [other, one]].filter(([from, to]) => ways[`${from}/${to}`]).map(([from, to]) => `${from} → ${to}: ${ways[`${from}/${to}`]}`);
  }

  pod(name) {
    return this.pieces.get(`pod/${name}`);
  }
}

// What an event opens or ends of a node's troubles: the trouble's name, and how bad it is; 0 where it is over.
const TROUBLES = {
  "store-lost": ["store", "poor"],
  "store-back": ["store", 0],
  "uplink-lost": ["uplink", "down"],
  "uplink-back": ["uplink", 0],
  "uplink-changed": ["uplink", 0],
  "lease-lost": ["lease", "down"],
  "lease-taken": ["lease", 0],
  failing: ["object", "poor"],
  held: ["object", "poor"],
  recovered: ["object", 0],
  repaired: ["object", 0],
  left: ["peer", "down"],
  refused: ["peer", "down"],
  joined: ["peer", 0],
  changed: ["peer", 0],
  killed: ["daemon", "down"],
  stopped: ["daemon", "down"],
  restarted: ["daemon", 0],
  cut: ["cut", "down"],
  healed: ["cut", 0],
};
const WORST = ["down", "poor", "unknown", "well"];

function worst(a, b) {
  return WORST[Math.min(WORST.indexOf(a), WORST.indexOf(b))];
}

// How it was after the first `count` events: as far as they tell, for a state of that time is kept nowhere.
export function past(model, count) {
  const open = new Map();
  const heard = new Set();
  for (const event of model.events.slice(0, count)) {
    heard.add(event.node);
    const [topic, health] = TROUBLES[event.kind] ?? [];
    const places = event.pairs.length ? event.pairs.map((pair) => [...pair].sort()) : event.about.map((name) => [name]);
    for (const [key, trouble] of open) {
      const name = trouble.topic === "daemon" ? trouble.place[0] : trouble.event.node;
      const isOver = event.kind === "started" ? event.about.includes(name) : event.kind === "healed" && !places.length && trouble.topic === topic;
      if (isOver) open.delete(key);
    }
    if (topic === undefined) continue;
    for (const place of places) {
      const isOne = topic === "daemon" || (place.length > 1 && topic !== "object");
      const key = JSON.stringify([event.node, topic, place, isOne ? "" : event.subject]);
      if (health) open.set(key, { event, health, topic, place });
      else open.delete(key);
    }
  }
  const nodes = new Map();
  for (const { name } of model.list("node")) nodes.set(name, { health: heard.has(name) ? "well" : "unknown", wrong: [] });
  const edges = new Map();
  for (const { event, health, place } of open.values()) {
    if (place.length > 1) {
      const key = place.join("/");
      const before = edges.get(key) ?? { health: "well", words: [] };
      edges.set(key, { health: worst(before.health, health), words: [...before.words, `${event.node} ${event.what}`] });
    } else if (nodes.has(place[0])) {
      const node = nodes.get(place[0]);
      node.health = worst(node.health, health);
      node.wrong.push(place[0] === event.node ? event.what : `${event.node} ${event.what}`);
    }
  }
  return {
    event: model.events[count - 1],
    node: (name) => nodes.get(name) ?? { health: "unknown", wrong: [] },
    edge: (a, b) => {
      const found = edges.get([a, b].sort().join("/"));
      const isWell = [a, b].every((name) => heard.has(name) && nodes.get(name)?.health !== "down");
      return found ?? { health: isWell ? "well" : "unknown", words: [] };
    },
  };
}
