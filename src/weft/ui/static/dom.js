// Makes elements. Text goes in as text, never as HTML: names and words come from other nodes.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

// Shows new content in a place; what is the same stays, and what had the focus has it again.
export function show(place, ...content) {
  const fresh = h("div", {}, ...content);
  const old = h("div", {});
  old.append(...place.cloneNode(true).childNodes);
  if (fresh.isEqualNode(old)) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...fresh.childNodes);
  if (focused !== undefined) focusOn(place, focused);
}

export function focusOn(place, key) {
  place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// What a click does, for elements that are no buttons by themselves.
export function pressed(act) {
  return {
    click: act,
    keydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        act(event);
      }
    },
  };
}
