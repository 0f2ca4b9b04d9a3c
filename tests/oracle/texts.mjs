// Seeded random texts that stress a tokenizer: scripts and their seams, white space, marks, digits,
// contractions, code, special tokens written out, control characters.

function generator(seed) { // mulberry32
  let a = seed >>> 0;
  const next = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (list) => list[below(list.length)] };
}

const RANGES = [
  [0x61, 0x7a], [0x41, 0x5a], [0x30, 0x39], [0x21, 0x2f], [0x3a, 0x40], [0x5b, 0x60], [0x7b, 0x7e],
  [0xa0, 0xff], [0x100, 0x24f], [0x250, 0x2af], [0x300, 0x36f], [0x370, 0x3ff], [0x400, 0x4ff],
  [0x531, 0x586], [0x591, 0x5f4], [0x600, 0x6ff], [0x900, 0x97f], [0xe01, 0xe5b], [0x10a0, 0x10ff],
  [0x1100, 0x11ff], [0x13a0, 0x13fd], [0x1780, 0x17f9], [0x1800, 0x180e], [0x1d00, 0x1dbf],
  [0x1e00, 0x1eff], [0x1f00, 0x1ffe], [0x2000, 0x206f], [0x2070, 0x209c], [0x20a0, 0x20bf],
  [0x2100, 0x218b], [0x2190, 0x21ff], [0x2460, 0x24ff], [0x2600, 0x26ff], [0x3000, 0x303f],
  [0x3041, 0x3096], [0x30a1, 0x30ff], [0x3105, 0x312f], [0x3130, 0x318e], [0x4e00, 0x4fff],
  [0xac00, 0xad00], [0xe000, 0xe010], [0xf900, 0xf9ff], [0xfb00, 0xfb4f], [0xfe00, 0xfe0f],
  [0xfe20, 0xfe2f], [0xff01, 0xffee], [0x10300, 0x10323], [0x1d15e, 0x1d1c0], [0x1d400, 0x1d7ff],
  [0x1f130, 0x1f189], [0x1f1e6, 0x1f1ff], [0x1f300, 0x1f6ff], [0x1f900, 0x1f9ff],
  [0x20000, 0x20040], [0x2f800, 0x2fa1d],
];
const SPACES = [' ', '  ', '    ', '\t', '\n', '\r', '\r\n', '\n\n', ' \n', '\n ', '\v', '\f',
  '\u001c', '\u0085', '\u00a0', '\u1680', '\u180e', '\u2003', '\u200b', '\u2028', '\u2029',
  '\u202f', '\u205f', '\u3000', '\ufeff'];
const CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'vE", "'m", "'ll", "'LL",
  "'d", "'\u017f", "'\u212a", '\u2019s', "''s", "'", "'l", "'st", "n't", "O'Neil", "y'all'd've"];
const EMOJI = ['\u{1f600}', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u200d\u{1f466}',
  '\u{1f3f3}\ufe0f\u200d\u{1f308}', '\u{1f1e9}\u{1f1ea}', '\u{1f44d}\u{1f3fd}', '\u2764\ufe0f', '1\ufe0f\u20e3'];
const CODE = ['int main(void) {', '\treturn 0;', 'x += 1;', '    if (a && !b)', '// note', '/* */',
  'foo_bar(baz)[3]', 'a->b', '"\\n"', '#include <x.h>', 'https://example.org/a?b=c&d=%20', '=>',
  '3.14159e-10', '0xDEADBEEF', '----', '====', '!!!', '...', '<div class="a">', '{{}}', 'camelCase',
  'HTTPServer', 'snake_case'];

const WORDS = ('the of and to in is was he for it with as his on be at by had not are but from or '
  + 'have an they which one you were all her she there would their we him been has when who will '
  + 'no more if out so up said what its about than into them can only other time new some could '
  + 'Hello World naïve café Straße Việt Nam Привет мир 你好 世界 こんにちは 안녕하세요 שלום مرحبا '
  + 'नमस्ते สวัสดี Ελληνικά 2024 1000000 ½ Ⅷ ١٢٣٤').split(' ');

function printable(json) {
  const bytes = new Map();
  let next = 256;
  for (let b = 0; b < 256; b++) {
    const own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    bytes.set(String.fromCodePoint(own ? b : next++), b);
  }
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  return (token) => {
    try {
      return decoder.decode(Uint8Array.from([...token], (c) => bytes.get(c)));
    } catch {
      return ''; // part of a character
    }
  };
}

export function* texts(json, count, seed) {
  const { below, pick } = generator(seed);
  const tokens = Object.keys(json.model.vocab);
  const added = json.added_tokens.map((token) => token.content);
  const text = printable(json);
  const character = () => {
    if (below(20) === 0) { // any scalar value at all
      let code = below(0x110000 - 0x800);
      if (code >= 0xd800) code += 0x800;
      return String.fromCodePoint(code);
    }
    const [low, high] = pick(RANGES);
    return String.fromCodePoint(low + below(high - low + 1));
  };
  const run = (make, most) => Array.from({ length: 1 + below(most) }, make).join('');
  const script = () => {
    const [low, high] = pick(RANGES);
    return run(() => String.fromCodePoint(low + below(high - low + 1)), 6);
  };
  const special = () => {
    const token = pick(added);
    const cut = below(4) === 0 ? below(token.length) : token.length;
    return pick(['', ' ', '  ', '\n']) + token.slice(0, cut) + pick(['', ' ', '\t ', '\u3000']);
  };
  const parts = [character, script, () => pick(SPACES), () => run(() => pick(SPACES), 5),
    () => pick(CONTRACTIONS), () => pick(EMOJI), () => pick(CODE), () => pick(WORDS),
    () => ' ' + pick(WORDS), () => run(() => String(below(10)), 8), special,
    () => String.fromCharCode(below(32)), () => pick(['\0', '\u007f', '\u009f']),
    () => text(pick(tokens)), () => text(pick(tokens)), () => pick(WORDS) + pick(CONTRACTIONS),
    () => 'e\u0301\u0323'.slice(0, 1 + below(3)), () => pick(['a', '_', ' ', '\u4e2d']).repeat(below(40))];
  yield '';
  for (let i = 1; i < count; i++) {
    const kinds = below(3) === 0 ? [pick(parts), pick(parts)] : parts;
    yield Array.from({ length: 1 + below(12) }, () => pick(kinds)()).join('');
  }
}
