// Text of a model on the page: always as text, never as markup, and nothing in it that cannot be seen.

// Controls, halves of characters, formatting (direction, zero width), private use, line separators. The two
// joiners stay: scripts and emoji are written with them, and they move nothing.
const UNSEEN = /((?![\u200c\u200d])[\p{Cc}\p{Cs}\p{Cf}\p{Co}\p{Zl}\p{Zp}])/u;

/** How a character that cannot be seen is shown. */
function nameOf(character) {
  const code = character.codePointAt(0);
  if (character === '\n') return '↵';
  if (character === '\t') return '⇥';
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return '␡';
  return `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
}

/** An element with attributes or properties, and children: elements, or strings, which become text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function seen(text) {
  return text.split(UNSEEN).flatMap((part, index) => {
    if (index % 2 === 0) return part ? [part] : [];
    const name = element('span', {className: 'control'}, nameOf(part));
    return part === '\n' || part === '\t' ? [name, part] : [name];
  });
}

/** The same as plain text, for where there are no elements. */
function seenAsText(text) {
  return seen(text).map(part => part.textContent ?? part).join('');
}

/** A text with what is new in it set off; with a limit, only so much of what stands around it. */
function textElement({text, from, to}, limit = Infinity) {
  const start = Math.max(0, from - limit), end = Math.min(text.length, to + limit);
  const inner = element('bdi', {dir: 'auto'}, start > 0 ? '…' : '', ...seen(text.slice(start, from)));
  if (to > from) inner.append(element('ins', {}, ...seen(text.slice(from, to))));
  inner.append(...seen(text.slice(to, end)), end < text.length ? '…' : '');
  return element('div', {className: 'text'}, inner);
}
