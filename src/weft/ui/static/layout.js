// Where nodes stand, and which one is next to another. Knows numbers alone.

const GAP = 20;
const WORDS = 17; // the height of a line of them on a card
const LEAST = { w: 84, h: 56 }; // of a tile, with the room around it

// Places for so many nodes in a room: cards on a ring while they fit without touching, else tiles in lines. A card has
// room for two rows of pods, or for one if no node has more of them, below so many lines of words.
export function places(count, width, height, { pods, words }) {
  const w = Math.min(208, Math.max(136, width * 0.24));
  const line = w < 190 ? 2 : 3;
  const top = 44 + WORDS * Math.max(1, words(fitting(w)));
  const card = { w, line, top, h: top + 8 + 27 * Math.min(2, Math.ceil(pods / line)) };
  if (count <= 12) {
    const ring = onRing(count, width, height, card);
    if (ring.every((a, i) => ring.every((b, j) => i >= j || apart(a, b, card)))) return { style: "card", size: card, at: ring };
  }
  const most = Math.max(1, Math.floor(width / LEAST.w));
  let columns = Math.max(1, Math.min(most, Math.round(Math.sqrt((count * width) / height / 1.6))));
  while (columns < most && Math.ceil(count / columns) * LEAST.h > height) columns += 1;
  const lines = Math.ceil(count / columns);
  const cell = { w: width / columns, h: Math.min(110, Math.max(LEAST.h, height / lines)) };
  const above = Math.max(0, (height - lines * cell.h) / 2);
  const at = Array.from({ length: count }, (_, number) => ({
    x: ((number % columns) + 0.5) * cell.w,
    y: above + (Math.floor(number / columns) + 0.5) * cell.h,
  }));
  return { style: "tile", cell, size: { w: Math.min(150, cell.w - 12), h: Math.min(72, cell.h - 12) }, at, height: lines * cell.h };
}

// The characters of small words that fit in so much of a card.
export function fitting(width) {
  return Math.floor((width - 36) / 6.8);
}

// Words in lines of at most so many characters; a word that is longer is shortened.
export function lines(text, most) {
  const found = [];
  for (const word of text.split(" ")) {
    const long = `${found.at(-1)} ${word}`;
    if (found.length && long.length <= most) found.splice(-1, 1, long);
    else found.push(word.length <= most ? word : `${word.slice(0, Math.max(1, most - 1))}…`);
  }
  return found;
}

function onRing(count, width, height, card) {
  if (count === 1) return [{ x: width / 2, y: height / 2 }];
  const start = count % 2 ? -90 : -90 - 180 / count;
  const angles = Array.from({ length: count }, (_, number) => ((start + (number * 360) / count) * Math.PI) / 180);
  const x = spread(angles.map(Math.cos), width, Math.min(width - card.w - 2 * GAP, 720));
  const y = spread(angles.map(Math.sin), height, Math.min(height - card.h - 2 * GAP, 520));
  return angles.map((_, number) => ({ x: x[number], y: y[number] }));
}

// The same numbers in so much of a room, around its middle.
function spread(numbers, room, used) {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const scale = most - least < 1e-9 ? 0 : used / (most - least);
  return numbers.map((number) => room / 2 + (number - (least + most) / 2) * scale);
}

function apart(a, b, size) {
  return Math.abs(a.x - b.x) > size.w + GAP || Math.abs(a.y - b.y) > size.h + GAP;
}

// The corners of an edge's way from one place to another. Among tiles it runs between them, in a lane of its own by
// its number, behind none but those that it joins.
export function corners({ style, cell, size, at }, a, b, number) {
  if (style === "card") return [a, b];
  const lane = ((number * 0.618) % 1) - 0.5;
  const [right, down] = [Math.sign(b.x - a.x) || (lane < 0 ? -1 : 1), Math.sign(b.y - a.y) || (a.y < at.at(-1).y ? 1 : -1)];
  const aside = lane * size.w * 0.6;
  const [wide, tall] = [lane * 0.7 * (cell.w - size.w), lane * 0.7 * (cell.h - size.h)];
  const [first, last] = [a.y + (down * cell.h) / 2 + tall, b.y + ((b.y === a.y ? down : -down) * cell.h) / 2 + tall];
  const between = b.x - (right * cell.w) / 2 + wide;
  const turn = Math.abs(first - last) < 1 ? [] : [{ x: between, y: first }, { x: between, y: last }];
  return [a, { x: a.x + aside, y: a.y }, { x: a.x + aside, y: first }, ...turn, { x: b.x + aside, y: last }, { x: b.x + aside, y: b.y }, b];
}

// A place on a way, at that share of its length.
export function along(way, share) {
  const parts = way.slice(1).map((end, number) => ({ from: way[number], end, long: Math.hypot(end.x - way[number].x, end.y - way[number].y) }));
  let rest = share * parts.reduce((sum, part) => sum + part.long, 0);
  for (const { from, end, long } of parts) {
    if (rest <= long && long) return { x: from.x + ((end.x - from.x) * rest) / long, y: from.y + ((end.y - from.y) * rest) / long };
    rest -= long;
  }
  return way.at(-1);
}

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The number of the place that lies in the direction of an arrow key; -1 if there is none.
export function towards(at, from, key) {
  const [dx, dy] = DIRECTIONS[key] ?? [0, 0];
  let best = -1;
  let least = Infinity;
  at.forEach((place, number) => {
    const x = place.x - at[from].x;
    const y = place.y - at[from].y;
    const along = x * dx + y * dy;
    const cost = along + 2 * Math.abs(x * dy + y * dx);
    if (along > 1 && cost < least) [best, least] = [number, cost];
  });
  return best;
}
