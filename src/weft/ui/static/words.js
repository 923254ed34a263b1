// How things read: times, states and kinds of events, each with a mark that needs no colour.

export const MARKS = { well: "✓", poor: "▲", down: "✕", unknown: "?" };
export const HEALTH = { well: "well", poor: "impaired", down: "broken", unknown: "not known" };

const BAD = new Set(["refused", "failing", "held", "store-lost", "lease-lost", "uplink-lost", "fault", "killed", "stopped", "cut", "broke"]);
const MENDED = new Set(["repaired", "recovered", "store-back", "lease-taken", "uplink-back", "joined", "restarted", "healed", "mended"]);

// An event's weight, in the words of health: something broke, was mended, or just happened.
export function weight(kind) {
  if (BAD.has(kind)) return "down";
  return MENDED.has(kind) ? "well" : ["left", "changed", "shaped"].includes(kind) ? "poor" : "unknown";
}

export const OUTSIDE = "outside"; // what a trace of a lab calls the world around its nodes
export const EVENT_MARKS = { down: "✕", well: "✓", poor: "▲", unknown: "•" };

export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB");
}

export function moment(unix) {
  const then = new Date(unix * 1000);
  const today = then.toDateString() === new Date().toDateString();
  return today ? clock(unix) : `${then.toLocaleDateString("en-CA")} ${clock(unix)}`;
}

// A time in its two largest units, as the commands have it.
export function span(seconds) {
  const parts = [];
  let rest = Math.max(0, Math.floor(seconds));
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

// An edge's label: what was measured, in few characters.
export function measured(edge) {
  if (edge.cut) return "cut";
  if (edge.tried === undefined) return HEALTH[edge.health];
  if (edge.health === "down") return "no answer";
  const loss = edge.lost ? `, ${Math.round((100 * edge.lost) / edge.tried)} % lost` : "";
  return edge.ms ? `${edge.ms.toFixed(2)} ms${loss}` : `answers${loss}`;
}

// An event in words, behind its node and time.
export function said(event) {
  const turn = event.was && event.now ? `${event.was} → ${event.now}` : event.was ? `was ${event.was}` : event.now;
  return [event.words, turn, event.blame].filter(Boolean).join("; ");
}
