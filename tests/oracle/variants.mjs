// Changes of one small tokenizer that reach every component that the tokenizer implements.

const byteLevel = (use_regex = false, add_prefix_space = false) =>
  ({ type: 'ByteLevel', add_prefix_space, trim_offsets: true, use_regex });
const split = (pattern, behavior = 'Isolated', invert = false) =>
  ({ type: 'Split', pattern, behavior, invert });
const digits = (individual_digits) => ({ type: 'Digits', individual_digits });
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });

const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];
const PATTERNS = {
  cl100k: "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    + '|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+',
  words: '\\w+|[^\\w\\s]+', 'not-words': '\\W', 'not-space': '\\S+', space: '[\\s]', 'class-word': '[\\w.]+',
  digit: '\\d{2}|\\D', nocase: '(?i)[a-fk-s]+|x\\d{,2}', 'nocase-k': "(?i:k'|s)+",
  lookbehind: '(?<=[.!?])\\s|(?<!a)b', lookahead: '(?=[A-Z])', star: 'a*', lazy: 'e.*?e|(?>[a-c]+)d?',
  scripts: '\\p{Han}+|\\p{Greek}+|\\p{Arabic}+|\\p{Hiragana}', negated: '\\P{L}+', 'caret-negated': '\\p{^L}{2,}',
  dotall: '(?m:x.)|y.', escapes: '\\u4e2d+|\\x{1f600}|\\x41|\\v|\\t|\\/', brace: '{a}|b{|\\{\\}|{}', anchors: '\\A.|.\\z',
  'not-class-space': '[^\\S\\n]+', categories: '\\p{Lu}\\p{Ll}*|\\p{M}+|\\p{P}|\\p{S}|\\p{Z}|\\p{C}+|\\p{Nd}|\\p{No}|\\p{Nl}',
};

// Patterns of one character.
export const CLASSES = ['\\w', '[\\w]', '\\W', '\\s', '[\\s]', '\\S', '[\\S]', '\\d', '\\D', '[^\\w\\s]', '.',
  '[^\\s\\p{L}\\p{N}]', '(?i:s)', '(?i:k)', '(?i:[a-z])', '(?i:[^a-z])', '\\p{Han}', '\\p{Latin}', '\\p{Common}',
  ...['L', 'N', 'P', 'S', 'M', 'Z', 'C', 'Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'Nd', 'Nl', 'No', 'Mn', 'Cf'].map((c) => `\\p{${c}}`)];

export function* variants(demo) {
  const change = (fields) => Object.assign(structuredClone(demo), fields);
  const pre = (...list) => change({ pre_tokenizer: list.length === 1 ? list[0] : sequence(...list) });
  yield ['gpt2', pre(byteLevel(true))];
  yield ['gpt2-prefix', pre(byteLevel(true, true))];
  yield ['digits', pre(digits(true), byteLevel(true))];
  yield ['digits-runs-prefix', pre(digits(false), byteLevel(false, true))];
  for (const behavior of BEHAVIORS)
    for (const invert of [false, true])
      yield [`${behavior}${invert ? '-inverted' : ''}`, pre(split({ String: ' ' }, behavior, invert),
        split({ Regex: '[aeiou]|\\p{N}' }, behavior, invert), byteLevel())];
  for (const [name, Regex] of Object.entries(PATTERNS))
    yield [`regex-${name}`, pre(split({ Regex }), byteLevel())];
  yield ['string', pre(split({ String: '.*' }), split({ String: "'s" }, 'MergedWithPrevious'), byteLevel())];
  for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'])
    yield [form, change({ normalizer: { type: form } })];
  yield ['NFD-NFKC', change({ normalizer: { type: 'Sequence', normalizers: [{ type: 'NFD' }, { type: 'NFKC' }] } })];
  const merging = structuredClone(demo);
  merging.model.ignore_merges = false;
  yield ['merges', merging];
  yield ['added', change({ normalizer: { type: 'NFC' }, added_tokens: added(demo) })];
}

// Tokens that strip, that are sought after normalisation, that begin alike.
function added(demo) {
  const next = Math.max(...demo.added_tokens.map((token) => token.id)) + 1;
  const token = (i, content, flags) => ({ id: next + i, content, single_word: false, lstrip: false,
    rstrip: false, normalized: false, special: false, ...flags });
  return [...demo.added_tokens, token(0, '<left>', { lstrip: true }), token(1, '<right>', { rstrip: true }),
    token(2, '<both>', { lstrip: true, rstrip: true, special: true }), token(3, '<ab', {}),
    token(4, 'e\u0301', { normalized: true }), token(5, '<abc>x', {}),
    token(6, '\u4e2d\u4e2d', { normalized: true, special: true }),
    { ...token(7, 'the', { normalized: true }), id: demo.model.vocab.the }];
}
